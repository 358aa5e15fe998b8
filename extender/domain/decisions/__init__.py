"""What decide() says, and what follows from it for conditions, counts and events."""
