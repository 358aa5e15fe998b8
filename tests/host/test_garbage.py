"""Garbage collections: few, without the objects that the watches read at first.

Freed memory is given back.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.cli.settings import load_module
from extender.host.upkeep import FreedMemory, collect_less_often, freeze_objects_after


@pytest.fixture(autouse=True)
def collection() -> Iterator[None]:
    """Restore the collector to the state of a new program, without the tests and their imports afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.unfreeze()
    yield
    gc.set_threshold(*before)
    gc.freeze()


def test_no_objects_are_frozen_before_all_watches_have_synced() -> None:
    assert not freeze_objects_after(lambda: False)()
    assert gc.get_freeze_count() == 0


def test_objects_of_the_first_lists_are_frozen_and_later_ones_are_not() -> None:
    synced = freeze_objects_after(lambda: True)
    early: list[object] = []
    assert synced()
    left_out, late = gc.get_freeze_count(), [early]
    assert synced()
    assert gc.get_freeze_count() <= left_out
    known = {id(each) for each in gc.get_objects()}
    assert id(early) not in known
    assert id(late) in known


def test_objects_of_loaded_modules_are_frozen() -> None:
    module = load_module("extender.host.upkeep")
    assert gc.isenabled()
    assert id(module.__dict__) not in {id(each) for each in gc.get_objects()}


def test_collections_are_fewer_before_and_after() -> None:
    before = gc.get_threshold()
    collect_less_often()
    assert freeze_objects_after(lambda: True)()
    assert all(now > default for now, default in zip(gc.get_threshold()[:2], before[:2], strict=True))


def test_freed_memory_between_live_objects_is_returned() -> None:
    """50 MB, of which each fiftieth block stays."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    freed = FreedMemory()
    blocks = [bytes(1000) for _ in range(50_000)]
    freed.trim_heap()
    stays, most = blocks[::50], resident()
    del blocks
    freed.trim_heap()
    assert resident() < most - 25_000_000
    assert len(stays) == 1000
