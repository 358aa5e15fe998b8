"""The result of decide(), and what follows from it for conditions, counts and events."""
