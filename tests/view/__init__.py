"""Tests of the scheduler's view: bytes of pods, and what a scheduler is shown of them."""
