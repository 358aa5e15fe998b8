"""Programs for developers of Muster; none of them is installed."""
