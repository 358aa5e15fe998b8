"""The dashboard: queues, groups and nodes in a browser."""
