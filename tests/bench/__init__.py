"""Benchmarks of Muster (`make bench`), as ratios to the stock scheduler on a real control plane.

Absolute figures depend on the machine. Speeds are therefore compared by alternating runs in one session.
Every load has a limit on its count and on its time. The counts of watches are checked against lists.
"""
