"""Explanation of a pending group: holders of lacking resources, and the smallest change that starts it."""
