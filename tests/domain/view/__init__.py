"""Tests of the stream of pods with models of the API server, of client-go and of the scheduler."""
