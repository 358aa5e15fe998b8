"""Admission rules for what users create, change and delete: pure, from objects and queues to faults."""
