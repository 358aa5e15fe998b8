"""Volcano Jobs: the next steps of a job, from its current state.

The package is pure: it has no I/O, clock, thread or randomness.
"""
