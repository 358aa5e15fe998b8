"""What every port has in common: who is let in, how long it may take, and what is refused."""
