"""The proxy."""

ANSWER_TIME = 60.0  # seconds; an error is reported after it
