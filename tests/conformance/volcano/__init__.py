"""Checks of the kinds of volcano.json, which come from Volcano's tests."""
