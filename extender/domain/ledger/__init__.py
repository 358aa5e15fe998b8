"""The ledger: everything that Muster knows and every claim on room, updated event by event."""
