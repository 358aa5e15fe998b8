"""Admission webhooks: the API server calls them before it writes a queue, a group, a Job or a pod."""
