"""Volcano Jobs: what one look at a job leads to. Pure: no I/O, clock, thread or randomness."""
