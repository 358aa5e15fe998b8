"""Statuses of LocalQueues: conditions at once, numbers within a budget.

Only changed statuses are written, and only while this replica leads.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace
from extender.api.objects.pods import LabelSelector
from extender.api.objects.queues import LocalQueue
from extender.controllers.coexistence import KueuePresence
from extender.controllers.objects import ObjectStore
from extender.controllers.queue_status import LocalQueueStatusController
from extender.kube.errors import Conflict, Unreachable
from extender.kube.resources import KUEUE_LOCAL_QUEUES, Resource
from tests.controllers.api import Api
from tests.controllers.bench import Bench
from tests.domain.builders import NAMESPACE, node, queue
from tests.domain.test_local_queues import labelled
from tests.domain.world import key

Json = dict[str, Any]
SELECTOR = LabelSelector({"a": "b"})


class LocalQueueApi(Api):
    """API server of LocalQueues, in `stored` by name."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, Json] = {}
        self.version = 0
        self.served: set[Resource] = set()

    def put(self, local: Json) -> None:
        self.version += 1
        local["metadata"]["resourceVersion"] = str(self.version)
        self.stored[local["metadata"]["name"]] = local

    def patch_local_queue_status(self, namespace: str, name: str, patch: Json, timeout: float = 10) -> None:
        self._record("status", name, patch["status"])
        local = self.stored[name]
        for field, value in patch["metadata"].items():
            if local["metadata"][field] != value:
                raise Conflict(409, "Conflict")
        amounts = {**local["status"].get("reserved", {}), **patch["status"].get("reserved", {})}
        left = {name: each for name, each in amounts.items() if each is not None}
        merged_status = {**patch["status"], "reserved": left}
        self.put({**local, "status": {**local["status"], **merged_status}})

    def serves(self, resource: Resource, timeout: float = 10) -> bool:
        self._record("serves", resource.root)
        return resource in self.served


class LocalQueueBench(Bench):
    def __init__(self, *objects: Any) -> None:
        super().__init__(node("a", cpu="4"), queue("q"), queue("r"), *objects)
        self.store = LocalQueueApi()
        self.copies: ObjectStore[str, LocalQueue] = ObjectStore()
        self.reporter = LocalQueueStatusController(self.means(self.store), self.copies)

    def put_queues(self, name: str = "lq", to: str = "q", policy: str = "") -> None:
        """Store a LocalQueue at the API server and show it in the watch."""
        meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
        status = self.store.stored.get(name, {}).get("status", {})
        self.store.put({"metadata": meta, "spec": {"queue": to, "stopPolicy": policy}, "status": status})
        self.show(name)

    def show(self, name: str) -> None:
        local = msgspec.convert(self.store.stored[name], LocalQueue)
        self.ledger.intake.set_local_queue(local)
        self.copies.put(f"{NAMESPACE}/{name}", local)

    def look(self, seconds: float = 2.0) -> list[str]:
        """Return the LocalQueues that one look writes, after that much time."""
        self.now += seconds
        self.store.calls = []
        self.reporter.on_decisions(self.settle().decisions)
        self.flush()
        for name in self.store.stored:
            self.show(name)
        return [call[0] for call in self.store.done("status")]

    def rest(self) -> None:
        for _ in range(10):
            if not self.look():
                return
        raise AssertionError("writes without end")

    def status(self, name: str = "lq") -> Json:
        found: Json = self.store.stored[name]["status"]
        return found

    def active(self) -> tuple[str, str]:
        (condition,) = self.status()["conditions"]
        return condition["status"], condition["reason"]


@pytest.fixture
def bench() -> Iterator[LocalQueueBench]:
    new_bench = LocalQueueBench()
    with new_bench.writing():
        new_bench.put_queues()
        yield new_bench


def test_the_status_has_the_groups_that_the_local_queue_admits(bench: LocalQueueBench) -> None:
    bench.add(labelled("g", 2), labelled("large", 9))
    bench.rest()
    assert bench.active() == ("True", "Ready")
    assert (bench.status()["waiting"], bench.status()["admitted"]) == (1, 1)
    bench.start("g").run("g-0", "g-1")
    bench.rest()
    assert bench.status()["reserved"] == {"cpu": "2", "pods": "2"}
    bench.ledger.intake.drop_group(key("g"))
    bench.delete("g-0", "g-1")
    bench.rest()
    assert (bench.status()["admitted"], bench.status()["reserved"]) == (0, {})


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda bench: bench.put_queues(to="nowhere"), "QueueNotFound"),
        (lambda bench: bench.ledger.intake.drop_queue("q"), "QueueNotFound"),
        (lambda bench: bench.add(queue("q", spec_state="Closed")), "QueueNotOpen"),
        (lambda bench: bench.add(queue("q", parent="away")), "InvalidSpec"),
        (lambda bench: bench.add(queue("q", namespace_selector=SELECTOR)), "NamespaceNotAllowed"),
        (lambda bench: bench.add(queue("q", stop_policy="Hold")), "Stopped"),
        (lambda bench: bench.put_queues(policy="HoldAndDrain"), "Stopped"),
        (lambda bench: bench.put_queues(policy="Maybe"), "InvalidSpec"),
        (lambda bench: bench.put_queues(to=""), "InvalidSpec"),
    ],
)
def test_the_reason_why_a_local_queue_admits_nothing_is_written_at_once(
    bench: LocalQueueBench, spoil: Any, reason: str
) -> None:
    bench.rest()
    spoil(bench)
    bench.look()
    assert bench.active() == ("False", reason)


def test_a_label_of_the_namespace_opens_its_local_queue(bench: LocalQueueBench) -> None:
    bench.add(queue("q", namespace_selector=SELECTOR))
    bench.rest()
    bench.add(Namespace(Meta(name=NAMESPACE, labels={"a": "b"})))
    bench.look()
    assert bench.active() == ("True", "Ready")


def test_only_those_that_changed_are_written(bench: LocalQueueBench) -> None:
    for number in range(50):
        bench.put_queues(f"other-{number}", "r")
    bench.rest()
    bench.add(labelled("g"))
    assert set(bench.look()) == {"lq"}
    bench.add(queue("r", stop_policy="Hold"))
    assert set(bench.look()) == {f"other-{number}" for number in range(50)}


def test_numbers_share_a_budget(bench: LocalQueueBench) -> None:
    names = [f"other-{number}" for number in range(50)]
    for name in names:
        bench.put_queues(name)
    bench.rest()
    bench.add([labelled(f"g-{name}", to=name) for name in names])
    written = bench.look(0.0)
    assert len(written) <= bench.reporter.burst
    for _ in range(40):
        written += bench.look()
    assert set(written) == set(names)


def test_a_deleted_local_queue_is_forgotten(bench: LocalQueueBench) -> None:
    bench.rest()
    del bench.store.stored["lq"]
    bench.copies.drop(f"{NAMESPACE}/lq")
    bench.ledger.intake.drop_local_queue(f"{NAMESPACE}/lq")
    assert bench.look() == []
    assert not bench.reporter.waiting_count


def test_conditions_of_others_stay(bench: LocalQueueBench) -> None:
    theirs = {"type": "Theirs", "status": "True", "reason": "", "message": ""}
    bench.store.stored["lq"]["status"]["conditions"] = [theirs]
    bench.put_queues()
    bench.rest()
    assert [each["type"] for each in bench.status()["conditions"]] == ["Theirs", "Active"]


def test_whether_kueue_is_there_is_looked_up() -> None:
    bench, api = Bench(labelled(label="kueue.x-k8s.io/queue-name")), LocalQueueApi()
    presence = KueuePresence(bench.ledger, api)
    api.fail("serves", Unreachable("away"))
    presence.poll()
    assert presence.is_true is None
    assert bench.settle().decision("g").queue == f"{NAMESPACE}/lq"
    api.served = {KUEUE_LOCAL_QUEUES[1]}
    presence.start()
    presence.stop()
    assert bench.settle().decision("g").queue == "default"
