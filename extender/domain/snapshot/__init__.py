"""Input and output of decide(): frozen infos; whole gangs, phases, decisions; jobs."""
