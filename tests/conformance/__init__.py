"""The field's own cases, as data: what Volcano's tests and rules say, put to the code that serves."""
