"""Muster: queues and whole-gang starts for the stock kube-scheduler, as its HTTP extender."""

__version__ = "0.1.0"
