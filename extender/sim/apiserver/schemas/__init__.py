"""What objects look like: the published schemas, and what they say of one value."""
