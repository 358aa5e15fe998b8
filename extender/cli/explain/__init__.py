"""Why something waits, found out from objects of the API server: evidence, explanation, and its rendering."""
