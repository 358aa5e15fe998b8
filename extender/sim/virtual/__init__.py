"""A cluster in virtual time: the same decide() on the same objects, without HTTP, threads or waiting.

    files, traces ──► workload ──► Simulation ──► Ledger ──► decide() ──► Measurements ──► report, Gantt chart
                                   (a heap of       ▲                      │
                                    moments)        └── an ideal scheduler ┘

The scheduler here takes what is planned at once and its bindings never fail, so what is measured is policy.
"""
