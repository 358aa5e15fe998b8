"""What decide() sees and says: frozen views; wholeness, phases, decisions; jobs."""
