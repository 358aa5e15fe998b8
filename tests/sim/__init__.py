"""The embedded cluster: it must behave like a real one where Muster depends on it."""
