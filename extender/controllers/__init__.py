"""Controllers: the cycle that makes Decisions, and what acts on them: gates, statuses, evictions,
leadership."""
