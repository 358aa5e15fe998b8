"""Ports: acceptance of connections, their limits, and refusals."""
