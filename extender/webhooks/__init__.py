"""Admission webhooks, which the API server calls before it writes a queue, a group, a Job or a pod."""
