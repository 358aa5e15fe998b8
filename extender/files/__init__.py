"""Objects in the files of -f: how they are read and created, and which of them Muster is asked to start."""
