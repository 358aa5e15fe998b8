"""The embedded cluster of `muster run`, and of scenarios that need no Kubernetes.

    apiserver ◄── HTTP ── muster serve (a child process, unchanged)
        │                      ▲
        ├── kubelets           │ filter, prioritize, bind over HTTP
        └── scheduler ─────────┘ one pod at a time, as the stock scheduler does

The cluster behaves like Kubernetes where Muster depends on Kubernetes' behaviour; other features are left
out. Kubelets and scheduler run in this process and call the API server's functions. Muster uses HTTP only.
"""
