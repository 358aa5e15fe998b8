"""The ports: verbs, health and metrics, debug, webhooks. Their common part is in port.py."""
