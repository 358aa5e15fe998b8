"""What people see of the embedded cluster: a picture of it, what happened, and how both are drawn."""
