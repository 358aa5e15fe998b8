"""Client of the API server. No other package talks to an API server.

    Connection ──► Reflector ──► a Sink (the Ledger)      reading: one list, then watches, endlessly
        └────────► ApiClient ◄── jobs of Writers          writing: a few small typed requests

The `kubernetes` package finds the cluster and the credentials. Muster handles requests and events itself,
because decoding with the model classes of that package costs a hundred times as much as decoding only the
needed fields.
"""
