"""Programs for those who work on Muster; nothing of it is installed."""
