"""What `muster run` shows of the embedded cluster: its state, what happened, and how both are drawn."""
