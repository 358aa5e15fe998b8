"""Checks of the families of queueing.json, which come from other queueing systems."""
