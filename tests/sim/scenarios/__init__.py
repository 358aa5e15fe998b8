"""The scenarios of the end-to-end tests, on the embedded cluster."""
