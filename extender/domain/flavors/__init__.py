"""Flavors: a queue's amounts, divided by the labels of nodes."""
