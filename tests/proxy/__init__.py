"""Tests of the scheduler proxy."""

ANSWER_TIME = 60.0  # seconds until a missing answer is an error
