"""Tests of policy: tables, invariants and virtual time."""
