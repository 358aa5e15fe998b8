"""One watch of pods after another, under any order of changes, releases, cuts and restarts.

Versions never go back, nothing is unbound after it was bound, and when everything is quiet, the scheduler
believes in those unbound pods that Muster has released, and in all bound ones.
"""

import pytest
from msgspec import json

from extender.domain.model.records import Uid
from extender.domain.model.versioned_pod_watch import Appearance, ListedPod, PodList
from tests.domain.view.api import OURS, Api
from tests.domain.view.muster import Connection, Muster
from tests.domain.view.world import World
from tests.property_examples import examples
from tests.rows import each_of

TESTS, WORLDS = 4, examples(500)  # in each
N1 = Appearance("n1")


@each_of(*range(0, TESTS * WORLDS, WORLDS))
def test_the_scheduler_believes_a_history_that_the_api_could_have_had(first: int) -> None:
    for seed in range(first, first + WORLDS):
        world = World(seed)
        try:
            world.run(120)
        except AssertionError as fault:
            raise AssertionError(f"world {seed}, after {' '.join(world.log[-40:])}: {fault}") from fault


class Pair:
    """An API server with one waiting pod at version 2, and a Muster that knows it."""

    def __init__(self) -> None:
        self.api = Api()
        self.api.create("a", OURS)
        self.uid = Uid(self.api.alive["a"].uid)
        self.muster = Muster(self.api)

    def watch_list(self) -> Connection:
        return self.muster.watch_list(0, self.api.version, self.api.version)

    def read(self, connection: Connection) -> None:
        while self.muster.read(connection):
            pass

    def move_on(self, connection: Connection) -> int:
        """Return the version that the client has then."""
        self.api.use_up_version()
        self.muster.send_bookmark(connection)
        return self.api.version

    def events(self, connection: Connection) -> list[tuple[str, str]]:
        frames = [(frame.type, frame.nominated) for frame in connection.outbox if frame.type != "BOOKMARK"]
        connection.outbox.clear()
        return frames


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_superseded_watch_changes_nothing_about_what_the_client_has(pair: Pair) -> None:
    dead, alive = pair.watch_list(), pair.watch_list()
    pair.read(alive)
    pair.muster.ledger.release(pair.uid, N1)
    pair.read(dead)
    version = pair.move_on(alive)
    pair.muster.connections.remove(alive)
    pair.muster.pass_changes_on()
    assert pair.events(pair.muster.watch(version, version)) == [("ADDED", "n1")]


def test_a_superseded_list_changes_nothing_about_what_the_client_has(pair: Pair) -> None:
    dead = PodList(pair.muster.waiting, pair.muster.ledger, 0)
    pod = pair.api.alive["a"]
    assert dead.appearance(ListedPod(pod.facts, json.encode(pod))) is None
    alive = pair.watch_list()
    pair.read(alive)
    pair.muster.ledger.release(pair.uid, N1)
    pair.muster.pass_changes_on()
    dead.end(2)
    version = pair.move_on(alive)
    pair.muster.connections.remove(alive)
    pair.muster.ledger.take_back(pair.uid)
    pair.muster.pass_changes_on()
    assert pair.events(pair.muster.watch(version, version)) == [("DELETED", "")]


def test_a_repeated_event_does_not_show_a_bound_pod_as_pending(pair: Pair) -> None:
    """The ledger is behind, and takes the pod for one that waits."""
    first = pair.watch_list()
    pair.read(first)
    pair.api.change("a")
    pair.api.change("a", node="n3")
    pair.read(first)
    pair.muster.ledger.release(pair.uid, N1)
    again = pair.muster.watch(2, 2)
    pair.muster.read(again)  # the first change, and not the second
    fresh = pair.watch_list()
    pair.read(fresh)
    assert pair.events(fresh) == [("ADDED", "")], "the bound pod alone"


def test_a_list_ends_a_pod_that_an_informer_may_have_in_another_way(pair: Pair) -> None:
    """End the pod as the process before this one showed it, in the same version of the pod."""
    pair.muster.ledger.release(pair.uid, N1)
    assert pair.muster.list(2, 2) == []
    assert pair.events(pair.muster.watch(2, 2)) == [("ADDED", "n1")]


def test_a_list_leaves_no_pod_out_that_the_scheduler_is_binding(pair: Pair) -> None:
    """Otherwise its capacity would be free in the scheduler's cache."""
    alive = pair.watch_list()
    pair.read(alive)
    for node in ("n1", "n2"):
        pair.muster.ledger.release(pair.uid, Appearance(node))
        pair.muster.pass_changes_on()
    pair.muster.ledger.held.add(pair.uid)
    assert [frame.nominated for frame in pair.muster.list(2, 2)] == ["n2"]


def test_the_ledger_is_notified_when_the_scheduler_sees_a_bound_pod_leave(pair: Pair) -> None:
    """It has ended, or it is gone. What is there from the beginning says nothing of that."""
    pair.api.change("a", node="n3")
    watch = pair.watch_list()
    pair.read(watch)
    last = pair.api.events[-1]
    assert last.facts is not None
    watch.stream.process(last)
    assert pair.muster.ledger.left == []
    watch.stream.process(last._replace(facts=last.facts._replace(has_ended=True)))
    assert pair.muster.ledger.left == ["n3"]
    pair.api.delete("a")
    pair.read(watch)
    assert pair.muster.ledger.left == ["n3", "n3"]
