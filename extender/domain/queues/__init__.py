"""Queues: records, states and tree; what each deserves, guarantee and ceiling; quotas that become queues."""
