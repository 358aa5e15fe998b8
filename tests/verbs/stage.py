"""Stage of the tests of verbs: a world with a barrier and the verbs, for concurrent calls.

Each bind call has a thread with an event loop. Tests wait for conditions, never for time.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition, RLock
from typing import Any

import msgspec

from extender.api.objects.pods import Pod
from extender.api.protocol import BindingArgs, ExtenderArgs, FilterResult
from extender.domain.ledger.claims import ClaimStage
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import Uid
from extender.ports.connection import Caller
from extender.verbs.barrier import Barrier, Hold
from extender.verbs.verbs import SchedulerVerbs
from tests.controllers.api import Api
from tests.domain.builders import NAMESPACE, SCHEDULER
from tests.domain.world import World

LONG = 1000.0  # seconds: longer than a test
PATIENCE = 10.0  # seconds to wait for another thread


class Patient(Caller):
    """Caller that waits until the test lets it hang up."""

    def __init__(self) -> None:
        super().__init__()
        self.hung_up = False

    def has_hung_up(self) -> bool:
        return self.hung_up


class Stage(World):
    """Stage. `posted`: the holds that the barrier posted. `withholds`: the test ends each posting."""

    def __init__(self, *objects: Any, longest_hold: float = LONG, withholds: bool = False) -> None:
        self.noticed = Condition()
        super().__init__()
        self.ledger = Ledger(
            Ownership(frozenset({SCHEDULER})),
            clock=lambda: self.now,
            lock=RLock(),
            on_change=self._record_change,
        )
        self.api = Api()
        self.posted: list[Hold] = []
        post = self._record_posting if withholds else self._post
        self.barrier = Barrier(self.ledger, post, longest_hold, clock=lambda: self.now)
        self.verbs = SchedulerVerbs(self.ledger, self.barrier, self.api)
        self._pool: ThreadPoolExecutor | None = None
        self.add(*objects)
        self.settle()

    def _record_change(self) -> None:
        super()._record_change()
        with self.noticed:
            self.noticed.notify_all()

    def _post(self, hold: Hold) -> None:
        """Post a binding successfully, and deliver it by the watch."""
        self._record_posting(hold)
        self.bind(hold.pod.name, hold.node)
        hold.finish("")

    def _record_posting(self, hold: Hold) -> None:
        with self.noticed:
            self.posted.append(hold)
            self.noticed.notify_all()

    @property
    def posted_pods(self) -> list[str]:
        return sorted(hold.pod.name for hold in self.posted)

    # ---- calls

    @contextmanager
    def calls(self) -> Iterator["Stage"]:
        """Allow bind calls; at the end, held calls are answered."""
        with ThreadPoolExecutor(64) as pool:
            self._pool = pool
            try:
                yield self
            finally:
                self.barrier.stop()
                for hold in self.posted:
                    if hold.result is None:
                        hold.finish("the test is over")

    def call(self, name: str, node: str = "", caller: Patient | None = None, uid: str = "") -> Future[str]:
        """Start a bind call for a pod, by default to the node that filter named."""
        assert self._pool is not None
        args = BindingArgs(name, NAMESPACE, uid or f"uid-{name}", node or self.filtered(name)[0])
        return self._pool.submit(lambda: asyncio.run(self.verbs.bind(args, caller or Patient())).error)

    def held_call(self, name: str, node: str = "", caller: Patient | None = None) -> Future[str]:
        """Start a bind call and wait until the barrier holds it."""
        answer = self.call(name, node, caller)
        self.wait_for(lambda: self.stage(name) is ClaimStage.HELD)
        return answer

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that changes with the ledger or with a posting."""
        with self.noticed:
            assert self.noticed.wait_for(condition, PATIENCE), self.barrier.held_calls()

    def filtered(self, name: str, offered: Sequence[str] | None = None) -> list[str]:
        """Return the nodes that filter answers."""
        names = self.filter(self.pods[name], offered).node_names
        assert isinstance(names, list)
        return names

    def filter(self, pod: Pod, offered: Sequence[str] | None = None) -> FilterResult:
        node_names = raw(list(self.nodes) if offered is None else offered)
        return self.verbs.filter(ExtenderArgs(pod, node_names=node_names))

    def uid(self, name: str) -> Uid:
        return Uid(self.pods[name].metadata.uid)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def started(*futures: Future[str]) -> list[str]:
    """Return the answers of the calls."""
    return [future.result(PATIENCE) for future in futures]
