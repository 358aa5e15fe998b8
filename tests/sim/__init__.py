"""Tests of the embedded cluster, which behaves like a real one where Muster depends on that."""
