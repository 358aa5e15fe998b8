"""Base of the scenarios: real components, simulated kubelets, faults of connections, and an observer."""
