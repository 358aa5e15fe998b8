"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# Repeatable: a red property test is red again in the next run, on any machine.
settings.register_profile(
    "muster", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("muster")
