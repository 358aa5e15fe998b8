"""Validation as a real API server does it, in its words: 400 for unreadable forms, 422 for invalid values."""
