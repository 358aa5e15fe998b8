"""What decide() sees and says: frozen views of nodes, queues and groups; quorum, phases, decisions; jobs."""
