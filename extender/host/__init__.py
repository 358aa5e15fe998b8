"""Assembly of all parts. Only this package imports all of them."""
