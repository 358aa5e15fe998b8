"""The Kubernetes layer, against small real servers on loopback."""
