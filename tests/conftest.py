"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

from tests.property_examples import TIMES, examples

# Repeatable: a red property test is red again in the next run, on any machine.
settings.register_profile(
    "muster",
    max_examples=examples(100),
    deadline=None,
    derandomize=TIMES == 1,
    print_blob=TIMES > 1,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("muster")
