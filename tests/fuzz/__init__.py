"""Fuzzing of all ports of a running Muster: `make fuzz`."""
