"""Kinds whose controllers make pods, as data: templates, counts, names, labels and owners.

`children` reads the table.
"""
