"""Wire types: the few fields that Muster reads, exactly as Go writes them. Pure data."""
