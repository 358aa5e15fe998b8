"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# Repeatable: a red property test is red again in the next run, on any machine.
settings.register_profile(
    "muster", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
# For a long run by hand, with other examples each time; tests that look at the name take far more of them.
settings.register_profile("many", settings.get_profile("muster"), derandomize=False, print_blob=True)
settings.load_profile("muster")
