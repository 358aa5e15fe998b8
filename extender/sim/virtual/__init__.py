"""A workload in virtual time: the same decide() on the same objects, without HTTP, threads or waiting.

    files, traces, dump ──► workload ──► Simulation ──► Measurements ──► report, Gantt chart

The simulated scheduler accepts each planned node at once, and its bindings never fail. So only the policy is
measured.
"""
