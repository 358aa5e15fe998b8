"""A scheduler that calls its extender as the stock kube-scheduler does, in the same order."""
