"""Coexistence with Volcano's own scheduler."""
