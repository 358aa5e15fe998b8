"""Policy: pure and deterministic. Snapshot in, Decisions out; no I/O, clock, thread or randomness."""
