"""Muster on a real control plane: etcd, kube-apiserver and a stock kube-scheduler, without containers."""
