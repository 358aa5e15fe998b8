"""decide() and its steps."""
