"""The embedded cluster of `muster run`, and of scenarios that need no Kubernetes.

    apiserver ◄── HTTP ── muster serve (a child process, unchanged)
        │                      ▲
        ├── kubelets           │ filter, prioritize, bind over HTTP
        └── scheduler ─────────┘ one pod at a time, as the stock one does

It behaves like the real thing wherever Muster leans on it, and only there: what nothing needs is left out.
Kubelets and scheduler live in this process and use the API server's own functions; everything that Muster
itself sees goes over the wire.
"""
