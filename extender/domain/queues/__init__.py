"""Queues: their records, states and tree, and the groups that a deleted queue left behind."""
