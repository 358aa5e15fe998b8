"""A scheduler that treats its extender as the stock one does: the same calls, in the same order."""
