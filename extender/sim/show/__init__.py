"""What people see of the embedded cluster: a state of it, what happened, and how both are drawn."""
