"""Base of the scenarios: real components, simulated kubelets, broken connections, a distrustful observer."""
