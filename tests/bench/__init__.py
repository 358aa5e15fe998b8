"""Benchmarks of Muster (`make bench`), as ratios to the stock scheduler on a real control plane.

Absolute figures depend on the machine, so speeds are compared by alternating runs of one session. Every load
is bounded in count and time, and the counts of watches are checked by lists.
"""
