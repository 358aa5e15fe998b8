"""The simulation in virtual time."""
