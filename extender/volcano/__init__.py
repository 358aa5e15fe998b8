"""Volcano Jobs: the next steps of a job, from its current state.

Pure: no I/O, clock, thread or randomness.
"""
