"""Planning on real nodes: capacity, affinity, nodes for whole groups, victims, and when nodes become free."""
