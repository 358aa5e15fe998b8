"""Scheduler proxy: a relay to the API server that shows pods to the scheduler when they may start."""
