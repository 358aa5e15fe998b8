"""Tests of admission reviews and of the webhooks' certificate."""
