"""Pods that the scheduler asks about before the watch has shown them."""

from collections.abc import Callable
from itertools import count

import pytest
from structlog.testing import capture_logs

from extender.domain.cache.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import PodRecord, Uid
from extender.verbs import newcomers
from extender.verbs.newcomers import Newcomers
from tests.domain.builders import SCHEDULER, pod

MINUTE = 60.0


class Watched(Ledger):
    """Something may happen whenever a pod has just been looked for."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def pod(self, uid: Uid) -> PodRecord | None:
        found = super().pod(uid)
        self.meanwhile()
        return found


class Arrivals:
    """Newcomers, their ledger, and time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ledger = Watched(Ownership(frozenset({SCHEDULER})))
        self.newcomers = Newcomers(self.ledger, lambda: self.now)

    def known(self, *names: str) -> list[bool]:
        return [self.ledger.pod(Uid(f"uid-{name}")) is not None for name in names]

    def shown(self, name: str) -> None:
        """The watch shows a pod, as the feed passes it on."""
        self.ledger.set_pod(pod(name))
        self.newcomers.seen(Uid(f"uid-{name}"))

    def after(self, seconds: float) -> "Arrivals":
        self.now += seconds
        return self


def test_a_newcomer_is_known_at_once() -> None:
    arrivals = Arrivals()
    arrivals.newcomers.meet(pod("p"))
    assert arrivals.known("p") == [True]


def test_a_ghost_is_forgotten() -> None:
    arrivals = Arrivals()
    arrivals.newcomers.meet(pod("p"))
    arrivals.after(MINUTE - 1).newcomers.forget_ghosts()
    assert arrivals.known("p") == [True]
    arrivals.after(1).newcomers.forget_ghosts()
    assert arrivals.known("p") == [False]


def test_a_pod_that_was_seen_stays() -> None:
    arrivals = Arrivals()
    arrivals.newcomers.meet(pod("p"))
    arrivals.shown("p")
    arrivals.after(2 * MINUTE).newcomers.forget_ghosts()
    assert arrivals.known("p") == [True]


def test_a_pod_that_the_watch_knew_first_stays() -> None:
    arrivals = Arrivals()
    arrivals.shown("p")
    arrivals.newcomers.meet(pod("p", cpu="2"))
    arrivals.after(2 * MINUTE).newcomers.forget_ghosts()
    record = arrivals.ledger.pod(Uid("uid-p"))
    assert record is not None
    assert record.shape.requests["cpu"] == 1000


def test_a_ghost_is_forgotten_although_others_come_and_go() -> None:
    arrivals = Arrivals()
    arrivals.newcomers.meet(pod("ghost"))
    arrivals.after(MINUTE).newcomers.meet(pod("p"))
    arrivals.shown("p")
    arrivals.newcomers.forget_ghosts()
    assert arrivals.known("ghost", "p") == [False, True]


def test_a_crowd_of_ghosts_is_forgotten_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newcomers, "_MOST", 3)
    arrivals = Arrivals()
    crowd = [f"g{n}" for n in range(10)]
    for name in crowd:
        arrivals.newcomers.meet(pod(name))
    arrivals.after(MINUTE).newcomers.forget_ghosts()
    assert not any(arrivals.known(*crowd))


@pytest.mark.parametrize("look", [1, 2])
def test_a_pod_that_the_watch_shows_while_it_is_met_stays(look: int) -> None:
    """Filter has found the pod unknown, and in that moment the watch shows it."""
    arrivals, looks = Arrivals(), count(1)

    def show() -> None:
        if next(looks) == look:
            arrivals.shown("p")

    arrivals.ledger.meanwhile = show
    arrivals.newcomers.meet(pod("p"))
    arrivals.after(MINUTE).newcomers.forget_ghosts()
    assert arrivals.known("p") == [True]


def test_a_ghost_is_forgotten_although_filter_asks_again() -> None:
    arrivals = Arrivals()
    arrivals.newcomers.meet(pod("p"))
    arrivals.after(MINUTE / 2).newcomers.meet(pod("p"))
    arrivals.after(MINUTE / 2).newcomers.forget_ghosts()
    assert arrivals.known("p") == [False]


def test_a_pod_that_cannot_be_read_is_told_and_not_remembered() -> None:
    arrivals = Arrivals()
    with capture_logs() as logs:
        arrivals.newcomers.meet(pod("p", cpu="a lot"))
    assert (logs[0]["event"], logs[0]["pod"]) == ("a pod cannot be read", "p")
    assert arrivals.known("p") == [False]
