"""What the watches read at first is left out of garbage collections, once it is all there."""

import gc
from collections.abc import Iterator

import pytest

from extender.host.garbage import LongLived


@pytest.fixture(autouse=True)
def collection() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_nothing_is_left_out_before_the_watches_have_read_everything() -> None:
    assert not LongLived(lambda: False)()
    assert gc.get_freeze_count() == 0


def test_what_is_there_then_is_left_out_and_what_comes_later_is_not() -> None:
    synced = LongLived(lambda: True)
    early: list[object] = []
    assert synced()
    left_out, late = gc.get_freeze_count(), [early]
    assert synced()
    assert gc.get_freeze_count() <= left_out
    known = {id(each) for each in gc.get_objects()}
    assert id(early) not in known
    assert id(late) in known


def test_young_objects_are_gone_through_less_often() -> None:
    before = gc.get_threshold()
    assert LongLived(lambda: True)()
    assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold()[1:] == before[1:]
