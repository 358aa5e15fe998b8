"""Applications of the ports: verbs, health and metrics, debug, webhooks."""
