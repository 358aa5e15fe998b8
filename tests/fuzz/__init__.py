"""Requests that make no sense, at all ports of a running Muster: `make fuzz`."""
