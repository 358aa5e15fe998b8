"""What the scenarios stand on: real components, played kubelets, broken wires, and an observer that trusts nobody."""
