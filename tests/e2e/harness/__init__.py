"""What the scenarios stand on: real components, played kubelets, broken wires, a distrustful observer."""
