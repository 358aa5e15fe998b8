"""Explanation of a pending group: the holders of what it lacks, and the smallest change that starts it."""
