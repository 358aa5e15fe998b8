"""What may be written: rules for queues, groups, Jobs and pods that users create, change and delete.

Pure: each rule takes the object and a picture of the queues, and returns its faults. None is: it may pass.
"""
