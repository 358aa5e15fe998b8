"""The only layer that talks to an API server.

    Connection ──► Reflector ──► a Sink (the Ledger)      reading: one list, then a watch, endlessly
        └────────► ApiClient ◄── jobs of Writers          writing: a few small typed requests

The `kubernetes` client finds the cluster and the credentials; everything per request and per event is ours,
because its model classes cost a hundred times what decoding just the needed fields does.
"""
