"""One watch of pods after another, under any order of changes, releases, cuts and restarts: versions never go
back, nothing is unbound after it was bound, and in the end the scheduler believes what Muster has released."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from extender.domain.model.records import Uid
from extender.domain.view.appearance import Appearance
from tests.domain.view.api import OURS, Api
from tests.domain.view.muster import Connection, Muster
from tests.domain.view.scheduler import Scheduler

NAMES = ("a", "b", "c")
some_name = st.sampled_from(NAMES)
some_names = st.sets(some_name, min_size=1)
some_appearance = st.sampled_from((Appearance(), Appearance("n1"), Appearance("n2"), Appearance(asks=True)))
few = st.integers(1, 8)


class Streams(RuleBasedStateMachine):
    @initialize(lists=st.booleans())
    def begin(self, lists: bool) -> None:
        self.api = Api()
        self.muster = Muster(self.api)
        self.scheduler = Scheduler(lists)
        self.connection: Connection | None = None

    # ---- the API

    @rule(name=some_name, scheduler=st.sampled_from((OURS, OURS, OURS, "other")))
    def pod_comes(self, name: str, scheduler: str) -> None:
        if name not in self.api.alive:
            self.api.create(name, scheduler)

    @rule(name=some_name)
    def pod_changes(self, name: str) -> None:
        if name in self.api.alive:
            self.api.change(name)

    @rule(name=some_name)
    def pod_is_bound_by_another(self, name: str) -> None:
        pod = self.api.alive.get(name)
        if pod and not pod.node and pod.uid not in self.scheduler.assumed:
            self.api.change(name, node="n3")

    @rule(name=some_name)
    def pod_is_deleted(self, name: str) -> None:
        if name in self.api.alive:
            self.api.delete(name)

    @rule()
    def something_else_changes(self) -> None:
        self.api.pass_by()

    @rule(back=st.integers(0, 3))
    def history_is_compacted(self, back: int) -> None:
        self.api.oldest = max(self.api.oldest, self.api.version - back)

    # ---- the ledger

    @rule(number=few)
    def ledger_reads(self, number: int) -> None:
        self.muster.ledger.read(min(self.muster.ledger.version + number, self.api.version))

    @rule(names=some_names, appearance=some_appearance)
    def pods_are_released(self, names: set[str], appearance: Appearance) -> None:
        ledger = self.muster.ledger
        for uid in self.uids(names):
            if uid in ledger.unbound and uid not in ledger.held:
                ledger.release(uid, appearance)

    @rule(names=some_names)
    def pods_are_taken_back(self, names: set[str]) -> None:
        for uid in self.uids(names):
            if uid in self.muster.ledger.released and not self.is_bound(uid):
                self.muster.ledger.take_back(uid)

    @rule()
    def changes_are_passed_on(self) -> None:
        self.muster.pass_changes_on()

    # ---- the scheduler

    @rule(name=some_name)
    def scheduler_posts_a_binding(self, name: str) -> None:
        for uid in self.uids({name}):
            if uid in self.scheduler.queue and uid not in self.scheduler.assumed:
                if uid in self.muster.ledger.released:
                    self.muster.ledger.held.add(uid)
                    self.scheduler.assumed.add(uid)

    @rule(name=some_name)
    def bind_call_ends(self, name: str) -> None:
        for uid in self.uids({name}):
            if uid in self.scheduler.assumed and not self.is_bound(uid):
                if uid in self.muster.ledger.held:
                    self.api.change(name, node="n1")
                else:
                    self.scheduler.call_failed(uid)

    @rule()
    def scheduler_restarts(self) -> None:
        self.cut()
        self.scheduler = Scheduler(self.scheduler.lists)

    # ---- watches

    @rule(stale=few, later=few, lost=st.booleans())
    def scheduler_connects(self, stale: int, later: int, lost: bool) -> None:
        """`lost`: a list that the client never gets."""
        if self.connection is not None:
            return
        if not self.scheduler.must_list:
            self.watch(later)
            return
        first = max(self.api.version - stale, self.scheduler.version or 0, self.api.oldest, 1)
        if self.scheduler.lists:
            frames = self.muster.list(first)
            if not lost:
                self.scheduler.replace(frames, first)
        else:
            self.connection = self.muster.watch_list(first, min(first + later - 1, self.api.version))

    def watch(self, later: int) -> None:
        version = self.scheduler.version
        assert version is not None
        if version < self.api.oldest:
            self.scheduler.must_list = True
            return
        self.connection = self.muster.watch(version, min(version + later - 1, self.api.version))

    @rule(number=few)
    def events_come(self, number: int) -> None:
        for connection in self.muster.connections:
            for _ in range(number):
                self.muster.read(connection)

    @rule(number=few)
    def events_come_on_one(self, number: int) -> None:
        for _ in range(number):
            if self.connection is not None:
                self.muster.read(self.connection)

    @rule()
    def bookmark_comes(self) -> None:
        for connection in self.muster.connections:
            self.muster.send_bookmark(connection)

    @rule(number=few)
    def scheduler_reads(self, number: int) -> None:
        for _ in range(number):
            if self.connection is not None and self.connection.outbox:
                self.scheduler.receive(self.connection.outbox.popleft())

    @rule(number=st.integers(0, 4), noticed=st.booleans())
    def watch_is_cut(self, number: int, noticed: bool) -> None:
        self.scheduler_reads(number)
        if self.connection is not None and noticed:
            self.muster.connections.remove(self.connection)
        self.cut()

    @rule()
    def dead_watches_are_noticed(self) -> None:
        self.muster.connections = [self.connection] if self.connection else []

    @rule(number=st.integers(0, 4))
    def muster_restarts(self, number: int) -> None:
        self.scheduler_reads(number)
        self.cut()
        for uid in set(self.scheduler.assumed):
            if not self.is_bound(uid):
                self.scheduler.call_failed(uid)
        self.muster = Muster(self.api)

    def cut(self) -> None:
        self.connection = None
        self.scheduler.disconnected()

    # ---- what has to hold

    @invariant()
    def nothing_that_is_bound_was_taken_away(self) -> None:
        """Of what the scheduler has posted itself: it counts it as there before its watch says so."""
        for connection in self.muster.connections:
            for write in connection.fresh():
                taken = write.ours and write.type == "DELETED" and write.pod is not None
                assert not (taken and write.pod.uid in self.scheduler.assumed and self.is_bound(write.pod.uid))

    @rule()
    def everything_becomes_quiet(self) -> None:
        for name in NAMES:
            self.bind_call_ends(name)
        self.muster.ledger.read(self.api.version)
        self.muster.pass_changes_on()
        for _ in range(1000):
            self.scheduler_connects(0, 8, lost=False)
            self.scheduler_reads(1)
            if self.connection and not self.connection.outbox and not self.muster.read(self.connection):
                break
        else:
            raise AssertionError("it never becomes quiet")
        self.compare()

    def compare(self) -> None:
        alive = self.api.alive.values()
        released = self.muster.ledger.released
        unbound = {pod.uid: released[Uid(pod.uid)].node for pod in alive if pod.ours and pod.uid in released}
        assert self.scheduler.queue == unbound
        assert self.scheduler.cache == {pod.uid: pod.node for pod in alive if pod.node}
        strangers = {pod.uid for pod in alive if not pod.node and not pod.ours}
        known = {frame.pod.uid for frame in self.scheduler.store.values() if frame.pod}
        assert known == unbound.keys() | self.scheduler.cache.keys() | strangers

    def teardown(self) -> None:
        self.everything_becomes_quiet()

    # ---- helpers

    def uids(self, names: set[str]) -> list[Uid]:
        return [Uid(pod.uid) for name, pod in sorted(self.api.alive.items()) if name in names]

    def is_bound(self, uid: str) -> bool:
        pod = self.api.by_uid(uid)
        return pod is None or bool(pod.node)


TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=300, stateful_step_count=50)
