"""Jobs that wait as jobs: their records, the pods that they will make, and what is to be done about them."""
