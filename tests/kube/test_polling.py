"""Looking at intervals, whatever a look does, until it is stopped."""

import threading

import pytest
from structlog.testing import capture_logs

from extender.kube.writers import Poller

PATIENCE = 10.0


class Looks:
    """Counter of the looks; those in `raising` raise."""

    def __init__(self, enough: int, raising: range = range(0), pause: float | None = None) -> None:
        self.count = 0
        self.enough = threading.Event()
        self._wanted = enough
        self._raising = raising
        self._pause = pause

    def __call__(self) -> float | None:
        self.count += 1
        if self.count >= self._wanted:
            self.enough.set()
        if self.count in self._raising:
            raise RuntimeError("ouch")
        return self._pause


@pytest.mark.parametrize(("pause", "set_by_look"), [(0.001, None), (3600.0, 0.001)])
def test_the_poller_looks_periodically_or_when_a_look_says(pause: float, set_by_look: float | None) -> None:
    looks = Looks(enough=3, pause=set_by_look)
    poller = Poller("test", pause, looks)
    poller.start()
    assert looks.enough.wait(PATIENCE)
    poller.stop()


def test_looks_that_raise_do_not_end_the_poller_and_are_logged_once_in_a_row() -> None:
    looks = Looks(enough=9, raising=range(2, 6))
    poller = Poller("test", 0.001, looks)
    with capture_logs() as logs:
        poller.start()
        assert looks.enough.wait(PATIENCE)
        poller.stop()
    assert [line["event"] for line in logs] == ["a poll failed"]


def test_the_start_can_wait_for_the_first_look_even_one_that_raises() -> None:
    for raising in (range(0), range(1, 2)):
        looks = Looks(enough=1, raising=raising)
        poller = Poller("test", 3600.0, looks)
        with capture_logs():
            poller.start(PATIENCE)
        poller.stop()
        assert looks.count == 1


def test_after_the_stop_there_is_no_look() -> None:
    looks = Looks(enough=1)
    poller = Poller("test", 0.001, looks)
    poller.stop()
    poller.start()
    assert not looks.enough.wait(0.05)
