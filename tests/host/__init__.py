"""Tests of the assembled parts."""
