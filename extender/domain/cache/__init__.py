"""The ledger: everything known and every claim on room, kept up event by event."""
