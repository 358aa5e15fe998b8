"""Quotas of other systems, and the queues that are made from them."""
