"""Cases of other queueing systems: their families, put to the code that serves, one module for each theme."""
