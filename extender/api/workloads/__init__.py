"""Kinds whose controllers make pods, as data: templates, counts, names, labels and owners.

The module `children` reads the table in `table`.
"""
