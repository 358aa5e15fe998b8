"""What decide() sees: frozen views of nodes, queues and groups."""
