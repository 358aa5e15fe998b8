"""Reading and changing pods in watches and lists, as bytes.

A pod is never decoded whole: the few facts that a stream needs are read, and three fields of the scheduler's
copy may be changed: the version, the nominated node, and the marker resource, with which the scheduler calls
filter.
"""
