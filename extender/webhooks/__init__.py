"""Admission: what the API server asks before it writes a queue, a group, a Job or a pod."""
