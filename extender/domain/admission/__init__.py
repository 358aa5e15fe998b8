"""Admission rules for queues, groups, Jobs and pods that users create, change and delete.

Pure: each rule takes the object and the queues, and returns the faults; without faults the object is
admitted.
"""
