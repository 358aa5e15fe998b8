"""Garbage collections are few, and leave out what the watches read at first, once it is all there."""

import gc
from collections.abc import Iterator

import pytest

from extender.host.host import collect_less_often, long_lived


@pytest.fixture(autouse=True)
def collection() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_nothing_is_left_out_before_the_watches_have_read_everything() -> None:
    assert not long_lived(lambda: False)()
    assert gc.get_freeze_count() == 0


def test_what_is_there_then_is_left_out_and_what_comes_later_is_not() -> None:
    synced = long_lived(lambda: True)
    early: list[object] = []
    assert synced()
    left_out, late = gc.get_freeze_count(), [early]
    assert synced()
    assert gc.get_freeze_count() <= left_out
    known = {id(each) for each in gc.get_objects()}
    assert id(early) not in known
    assert id(late) in known


def test_collections_are_fewer_before_and_after() -> None:
    before = gc.get_threshold()
    collect_less_often()
    assert long_lived(lambda: True)()
    assert all(now > default for now, default in zip(gc.get_threshold()[:2], before[:2], strict=True))
