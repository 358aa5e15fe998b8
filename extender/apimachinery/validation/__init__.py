"""Validation as in a real API server: 400 for unreadable bodies, 422 for invalid values."""
