"""What each queue deserves of the cluster, what it is guaranteed, and what it may hold at most."""
