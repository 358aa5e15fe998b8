"""API server in memory: kinds, defaults, validation, patches, and a store."""
