"""Reservations: how long what runs will still run, and when and where a group finds room after that."""
