"""The controllers of the embedded cluster: for Kubernetes' own workloads, and the garbage collector."""
