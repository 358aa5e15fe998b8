"""Assembly of all parts; only `host` knows all of them."""
