"""Planning on real nodes: capacity, affinity, all members at once; victims, and when nodes will be free."""
