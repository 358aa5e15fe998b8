"""Screen of `muster run`: the state of the embedded cluster, its events, and their drawing."""
