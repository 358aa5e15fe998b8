"""Imported before all else of the tests."""

import os
import sys

# What one program has compiled, the hundreds after it read: a start takes half the time. So do tests and
# Hypothesis, whose assertions are long to compile, from run to run and from worker to worker.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
