"""Reading and changing pods in watches and lists, as bytes.

Every pod event of the cluster comes through here before the scheduler sees it, so a pod is never decoded
whole: the few facts that a stream needs are read, and three fields may be changed (facts of the copy that the
scheduler keeps, not of the API): the version, the nominated node, and the mark for which it asks filter.
"""
