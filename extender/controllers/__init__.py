"""What acts on Decisions by itself: the cycle that makes them, gates, status, undoing, leadership."""
