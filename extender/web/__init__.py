"""The ports: verbs, health and metrics, debug, webhooks. What they share is in port.py."""
