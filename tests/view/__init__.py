"""Tests of the scheduler's view: bytes of pods, what a scheduler is shown of them, and the relay."""

ANSWER_TIME = 60.0  # seconds; an error is reported after it
