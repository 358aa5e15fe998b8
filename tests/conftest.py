"""Settings that all tests share."""

import gc
from collections.abc import Generator, Iterable

import pytest
from hypothesis import HealthCheck, settings

from tests.property_examples import TIMES, examples

# Repeatable: a property test that fails also fails in the next run, on any machine.
settings.register_profile(
    "muster",
    max_examples=examples(50),
    deadline=None,
    derandomize=TIMES <= 1,
    print_blob=TIMES > 1,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("muster")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection: all tests and their imports are there until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(200_000, 20, 20)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Set the timeout of property tests, so that a test that does not end ends its process.

    Otherwise Hypothesis would take the timeout for a failing example, and repeat the example without a
    timeout. The timeout grows with the number of examples.
    """
    for item in items:
        if item.get_closest_marker("hypothesis"):
            item.add_marker(pytest.mark.timeout(600 * max(TIMES, 1), method="thread"))
