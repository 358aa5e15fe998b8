"""Who wrote which field: metadata.managedFields, and server-side apply, which goes by it."""
