"""`make bench`: what Muster costs, as ratios against the stock scheduler on a real control plane.

Absolute figures belong to the machine; a claim about speed is a ratio of two runs of one session, taken
alternately. Every load is bounded in count and time, and what a watch has counted is counted again by a list.
"""
