from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.web.running import Server


@pytest.fixture
def program() -> Iterator[Server]:
    """Start tests.web.program."""
    with ExitStack() as stack:
        yield Server(stack)


@pytest.fixture(scope="session")
def impatient_program() -> Iterator[Server]:
    """Start a program with short deadlines for connections."""
    with ExitStack() as stack:
        yield Server(stack, "--impatient")


@pytest.fixture(scope="session")
def shared_program() -> Iterator[Server]:
    """Start one program for all tests of a process that do not change it."""
    with ExitStack() as stack:
        yield Server(stack)
