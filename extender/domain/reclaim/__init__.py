"""Which running pods give their room to a group that waits: candidates, and the smallest set of them."""
