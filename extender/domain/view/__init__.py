"""View of pods for the scheduler next to Muster: pure, no bytes and no sockets."""
