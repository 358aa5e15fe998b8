"""What the ports answer: verbs, health and metrics, debug, webhooks."""
