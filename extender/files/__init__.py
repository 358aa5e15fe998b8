"""Objects of -f files: how they are read and created, and which of them Muster is asked to start."""
