"""Random changes of the pods, the ledger and the watches, with the invariants that hold after them."""

from random import Random
from typing import TypeVar

from extender.domain.model.records import Uid
from extender.domain.model.versioned_pod_watch import Appearance
from tests.domain.view.api import OURS, Api
from tests.domain.view.muster import Connection, Muster
from tests.domain.view.scheduler import Scheduler

T = TypeVar("T")
NAMES = ("a", "b", "c", "d")
APPEARANCES = (
    Appearance("n1"),
    Appearance("n1"),
    Appearance("n2"),
    Appearance(),
    Appearance(has_marker=True),
)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.api = Api()
        self.muster = Muster(self.api)
        self.scheduler = Scheduler(lists=self.random.random() < 0.5)
        self.connection: Connection | None = None
        # UIDs of pods with a bind call that has not ended; the scheduler may have forgotten the pod.
        self.calls: set[str] = set()
        self.log: list[str] = []
        self._step_names = tuple(dict(STEPS))
        # The frequencies of steps vary from world to world.
        self._weights = [weight * self.random.choice((0.3, 1, 1, 3)) for _, weight in STEPS]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            (step,) = self.random.choices(self._step_names, self._weights)
            self.log.append(step)
            getattr(self, step)()
            self.check_writes()
        self.everything_becomes_quiet()

    # ---- the API

    def pod_comes(self) -> None:
        name = self.random.choice(NAMES)
        if name not in self.api.alive:
            self.api.create(name, self.random.choice((OURS, OURS, OURS, "other")))

    def pod_changes(self) -> None:
        for pod in self.one_of(list(self.api.alive.values())):
            self.api.change(pod.name)

    def pod_is_bound_by_another(self) -> None:
        free = [
            pod for pod in self.api.alive.values() if not pod.node and pod.uid not in self.scheduler.assumed
        ]
        for pod in self.one_of(free):
            self.api.change(pod.name, node="n3")

    def pod_is_deleted(self) -> None:
        for pod in self.one_of(list(self.api.alive.values())):
            self.api.delete(pod.name)

    def something_else_changes(self) -> None:
        self.api.use_up_version()

    def history_is_compacted(self) -> None:
        self.api.oldest = max(self.api.oldest, self.api.version - self.random.randrange(4))

    # ---- the ledger

    def ledger_reads(self) -> None:
        ledger = self.muster.ledger
        ledger.read(min(ledger.version + self.random.choice((1, 2, 4, 1000)), self.api.version))

    def pods_are_released(self) -> None:
        ledger = self.muster.ledger
        for uid in self.some_of(sorted(ledger.unbound - ledger.held)):
            ledger.release(uid, self.random.choice(APPEARANCES))

    def pods_are_withdrawn(self) -> None:
        """Withdraw released pods that are not posted."""
        ledger = self.muster.ledger
        for uid in self.some_of(
            [uid for uid in ledger.released if uid not in ledger.held or self.is_unbound(uid)]
        ):
            ledger.take_back(uid)

    def changes_are_passed_on(self) -> None:
        self.muster.pass_changes_on()

    # ---- the scheduler

    def scheduler_calls_bind(self) -> None:
        ledger = self.muster.ledger
        for uid in self.one_of(sorted(self.scheduler.queue.keys() - self.scheduler.assumed - self.calls)):
            if uid in ledger.released:
                ledger.held.add(Uid(uid))
                self.scheduler.assumed.add(uid)
                self.calls.add(uid)

    def bind_calls_end(self) -> None:
        for uid in self.some_of(sorted(self.calls)):
            self.end_call(uid)

    def end_call(self, uid: str) -> None:
        self.calls.discard(uid)
        pod = self.api.by_uid(uid)
        if pod is None or uid not in self.muster.ledger.held:
            self.scheduler.call_failed(uid)
        elif not pod.node:
            self.api.change(pod.name, node="n1")

    def scheduler_restarts(self) -> None:
        self.cut()
        self.muster.ledger.held -= {Uid(uid) for uid in self.calls}
        self.calls.clear()
        self.scheduler = Scheduler(self.scheduler.lists)

    # ---- watches

    def scheduler_connects(self) -> None:
        if self.connection is None:
            self.connect(self.random.choice((0, 0, 1, 3)), is_lost=self.random.random() < 0.2)

    def connect(self, stale: int, is_lost: bool) -> None:
        """Connect the scheduler.

        `stale`: maximum age of a list, in versions; `is_lost`: the answer does not reach the client.
        """
        if not self.scheduler.must_list:
            self.watch()
            return
        known_version = self.scheduler.version or 0
        oldest = max(known_version, self.api.oldest, 1)
        version = max(self.api.version - stale, oldest)
        if not self.scheduler.lists:
            self.connection = self.muster.watch_list(
                known_version, version, self.random.randint(version, self.api.version)
            )
            return
        frames = self.muster.list(known_version, version)
        for uid in self.scheduler.assumed:
            listed = any(frame.pod and frame.pod.uid == uid for frame in frames)
            assert listed or self.is_unbound(uid) or not self.api.by_uid(uid), (
                "bound, and left out of the list"
            )
        if not is_lost:
            self.scheduler.replace(frames, version)

    def watch(self) -> None:
        version = self.scheduler.version
        assert version is not None
        if version < self.api.oldest:
            self.scheduler.must_list = True
        else:
            self.connection = self.muster.watch(version, self.random.randint(version, self.api.version))

    def events_come(self) -> None:
        for connection in self.muster.connections:
            if self.random.random() < 0.7:
                for _ in range(self.random.choice((1, 2, 4, 10))):
                    self.muster.read(connection)

    def bookmarks_come(self) -> None:
        for connection in self.muster.connections:
            self.muster.send_bookmark(connection)

    def scheduler_reads(self) -> None:
        self.read(self.random.choice((1, 2, 4, 10, 1000)))

    def read(self, number: int) -> None:
        for _ in range(number):
            if self.connection is not None and self.connection.outbox:
                self.scheduler.receive(self.connection.outbox.popleft())

    def watch_is_cut(self) -> None:
        if self.connection is not None:
            self.read(self.random.randrange(4))
            if self.random.random() < 0.7:
                self.muster.connections.remove(self.connection)
            self.cut()

    def dead_watches_are_noticed(self) -> None:
        self.muster.connections = [self.connection] if self.connection else []

    def muster_restarts(self) -> None:
        self.read(self.random.randrange(4))
        self.cut()
        for uid in self.calls:
            self.scheduler.call_failed(uid)
        self.calls.clear()
        self.muster = Muster(self.api)

    def cut(self) -> None:
        self.connection = None
        self.scheduler.disconnected()

    # ---- invariants

    def check_writes(self) -> None:
        """Check that no pod is withdrawn that the scheduler has bound, even if no watch shows it yet."""
        for connection in self.muster.connections:
            for frame in connection.fresh():
                if (
                    frame.by_muster
                    and frame.type == "DELETED"
                    and frame.pod
                    and frame.pod.uid in self.scheduler.assumed
                ):
                    pod = self.api.by_uid(frame.pod.uid)
                    assert pod is None or not pod.node, f"withdrawn although bound: {frame}"

    def everything_becomes_quiet(self) -> None:
        for uid in sorted(self.calls):
            self.end_call(uid)
        self.muster.ledger.read(self.api.version)
        self.muster.pass_changes_on()
        for _ in range(1000):
            if self.connection is None:
                self.connect(0, is_lost=False)
            elif not self.connection.outbox and not self.muster.read(self.connection):
                self.compare()
                return
            self.read(1000)
        raise AssertionError("the world never becomes quiet")

    def compare(self) -> None:
        alive, released = self.api.alive.values(), self.muster.ledger.released
        unbound = {
            pod.uid: released[Uid(pod.uid)].node for pod in alive if pod.is_ours and pod.uid in released
        }
        bound = {pod.uid: pod.node for pod in alive if pod.node}
        foreign = {pod.uid for pod in alive if not pod.node and not pod.is_ours}
        assert self.scheduler.queue == unbound
        assert self.scheduler.cache == bound
        known = {frame.pod.uid for frame in self.scheduler.store.values() if frame.pod}
        assert known == unbound.keys() | bound.keys() | foreign

    # ---- helpers

    def is_unbound(self, uid: str) -> bool:
        """Return whether a pod is unbound in the API."""
        pod = self.api.by_uid(uid)
        return pod is not None and not pod.node

    def one_of(self, items: list[T]) -> list[T]:
        """Return a list with a random item, or an empty list if there is none."""
        return [self.random.choice(items)] if items else []

    def some_of(self, items: list[T]) -> list[T]:
        return self.random.sample(items, self.random.randint(1, len(items))) if items else []


STEPS = (
    ("pod_comes", 6),
    ("pod_changes", 4),
    ("pod_is_bound_by_another", 1),
    ("pod_is_deleted", 2),
    ("something_else_changes", 2),
    ("history_is_compacted", 0.5),
    ("ledger_reads", 8),
    ("pods_are_released", 6),
    ("pods_are_withdrawn", 3),
    ("changes_are_passed_on", 8),
    ("scheduler_calls_bind", 3),
    ("bind_calls_end", 2),
    ("scheduler_restarts", 0.5),
    ("scheduler_connects", 10),
    ("events_come", 10),
    ("bookmarks_come", 2),
    ("scheduler_reads", 10),
    ("watch_is_cut", 3),
    ("dead_watches_are_noticed", 1),
    ("muster_restarts", 0.7),
    ("everything_becomes_quiet", 2),
)
