"""Kinds whose controllers make pods, as data: where their templates and counts are, and how what they make is
named, labelled and owned. `children` reads the table."""
