"""Cases of other schedulers' tests and rules as data, checked against Muster's code."""
