"""Living next to Volcano's own scheduler."""
