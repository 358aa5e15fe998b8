"""Codecs that read and change pods in watches and lists, as bytes.

A pod is never decoded as a whole. A codec reads only the few facts that a stream needs. It can change three
fields of the scheduler's copy: the version, the nominated node, and the marker resource, by which the
scheduler calls Muster's filter.
"""
