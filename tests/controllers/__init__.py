"""What acts on decisions by itself."""
