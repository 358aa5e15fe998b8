"""Controllers: the scheduling cycle, and listeners that write gates, statuses and evictions by decisions."""
