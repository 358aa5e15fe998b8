"""What Muster says about itself: logs and metrics."""
