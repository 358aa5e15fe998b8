"""The stream of pods against models of the API server, of client-go and of the scheduler."""
