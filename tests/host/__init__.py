"""The assembled parts."""
