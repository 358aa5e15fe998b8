"""What is said of one group on demand: who holds what it lacks, and the smallest change that starts it."""
