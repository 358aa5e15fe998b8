"""Logs, metrics, and the file of the history."""
