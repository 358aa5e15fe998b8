"""What each queue deserves of the cluster."""
