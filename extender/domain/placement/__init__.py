"""Planning on real nodes: capacity, affinity, and all members at once."""
