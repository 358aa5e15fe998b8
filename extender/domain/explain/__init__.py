"""Why one group waits: who holds what it lacks, and the smallest change that starts it."""
