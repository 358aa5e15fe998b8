"""The ledger: the state of the cluster and the claims on capacity, updated event by event."""
