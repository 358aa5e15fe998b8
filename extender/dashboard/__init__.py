"""The dashboard: what people see of queues, groups and nodes in a browser."""
