"""Applications of the ports: verbs, health, metrics, debug and webhooks."""
