"""Cases of Volcano: its kinds, put to the code that serves."""
