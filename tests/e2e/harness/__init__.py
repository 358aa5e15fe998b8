"""Base of the scenarios: real components, simulated kubelets, connection faults, and an observer."""
