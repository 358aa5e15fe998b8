"""Admission rules for objects that users create, change and delete: pure functions that return faults."""
