"""API objects as an API server takes them in: kinds, defaults, validation, patches, and a store in memory."""
