"""A desk for each test, and what stands in front of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from tests.cli.front import Front, in_front_of


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    desk.server.start()
    yield desk
    desk.server.stop()


@pytest.fixture
def front(desk: Desk) -> Iterator[Front]:
    with in_front_of(desk) as front:
        yield front
