"""The embedded cluster: where Muster leans on a real one, this one must behave alike."""
