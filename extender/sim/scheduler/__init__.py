"""A scheduler that calls its extender as the stock kube-scheduler does, and in the same order."""
