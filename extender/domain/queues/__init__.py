"""Queues: records, states, tree, deserved share, guarantee and ceiling; quotas that become queues."""
