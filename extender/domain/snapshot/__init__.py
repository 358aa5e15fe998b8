"""Input and output of decide(): frozen views; whole gangs, phases, decisions; jobs."""
