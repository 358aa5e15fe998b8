"""Ports: admission of connections, their time limits, and refusals."""
