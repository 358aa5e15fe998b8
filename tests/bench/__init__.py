"""Benchmarks of Muster (`make bench`), as ratios to the stock scheduler on a real control plane.

Absolute figures depend on the machine. To compare speeds, the benchmarks alternate runs of both schedulers in
one session. Every load has a limit on its objects and a time limit. Lists confirm the counts of the watches.
"""
