"""The controllers."""
