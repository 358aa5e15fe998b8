"""The only layer that talks to an API server.

    Connection ──► Reflector ──► a Sink (the Ledger)      reading: one list, then watches, endlessly
        └────────► ApiClient ◄── jobs of Writers          writing: a few small typed requests

The `kubernetes` client finds the cluster and the credentials; requests and events are handled here, because
the client's model classes cost a hundred times as much as decoding only the needed fields.
"""
