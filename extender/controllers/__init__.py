"""Controllers: the scheduling cycle that makes Decisions, and their followers: gates, statuses, evictions."""
