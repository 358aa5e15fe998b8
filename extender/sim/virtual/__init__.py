"""A workload in virtual time: the same decide() on the same objects, without HTTP, threads or waiting.

    files, traces, dump ──► workload ──► Simulation ──► Measurements ──► report, Gantt chart

The scheduler here takes each planned node at once and its bindings never fail, so policy alone is measured.
"""
