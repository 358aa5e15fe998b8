"""The ports: verbs under gunicorn, and health and debug aside."""
