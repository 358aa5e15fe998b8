"""What the scheduler beside Muster is shown of pods: pure, no bytes and no sockets."""
