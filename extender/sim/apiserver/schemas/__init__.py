"""Published schemas of objects."""
