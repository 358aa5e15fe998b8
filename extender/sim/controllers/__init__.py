"""The controllers of the embedded cluster: of Kubernetes' own workloads, and the garbage collector."""
