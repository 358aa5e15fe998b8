"""The dashboard: pages about queues, groups and nodes for a browser."""
