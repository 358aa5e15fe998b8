"""The scheduler's view: a relay to the API server that shows it pods when they may start."""
