"""Scheduling cycle: decide(), and the steps by which it evaluates all groups."""
