from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.web.running import Server


@pytest.fixture
def program() -> Iterator[Server]:
    """Yield tests.web.program, ready."""
    with ExitStack() as stack:
        yield Server(stack)


@pytest.fixture(scope="session")
def impatient_program() -> Iterator[Server]:
    """Yield a program with short deadlines of connections."""
    with ExitStack() as stack:
        yield Server(stack, "--impatient")


@pytest.fixture(scope="session")
def lasting_program() -> Iterator[Server]:
    """Yield one program for all tests of a process that do not change it."""
    with ExitStack() as stack:
        yield Server(stack)
