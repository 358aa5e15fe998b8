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
        given = {**patch["status"], "reserved": left}
        self.put({**local, "status": {**local["status"], **given}})

    def serves(self, resource: Resource, timeout: float = 10) -> bool:
        self._record("serves", resource.root)
        return resource in self.served


class Desk(Bench):
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
def desk() -> Iterator[Desk]:
    made = Desk()
    with made.writing():
        made.put_queues()
        yield made


def test_the_status_has_the_groups_that_the_local_queue_admits(desk: Desk) -> None:
    desk.add(labelled("g", 2), labelled("large", 9))
    desk.rest()
    assert desk.active() == ("True", "Ready")
    assert (desk.status()["waiting"], desk.status()["admitted"]) == (1, 1)
    desk.start("g").run("g-0", "g-1")
    desk.rest()
    assert desk.status()["reserved"] == {"cpu": "2", "pods": "2"}
    desk.ledger.intake.drop_group(key("g"))
    desk.delete("g-0", "g-1")
    desk.rest()
    assert (desk.status()["admitted"], desk.status()["reserved"]) == (0, {})


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda desk: desk.put_queues(to="nowhere"), "QueueNotFound"),
        (lambda desk: desk.ledger.intake.drop_queue("q"), "QueueNotFound"),
        (lambda desk: desk.add(queue("q", spec_state="Closed")), "QueueNotOpen"),
        (lambda desk: desk.add(queue("q", parent="away")), "InvalidSpec"),
        (lambda desk: desk.add(queue("q", namespace_selector=SELECTOR)), "NamespaceNotAllowed"),
        (lambda desk: desk.add(queue("q", stop_policy="Hold")), "Stopped"),
        (lambda desk: desk.put_queues(policy="HoldAndDrain"), "Stopped"),
        (lambda desk: desk.put_queues(policy="Maybe"), "InvalidSpec"),
        (lambda desk: desk.put_queues(to=""), "InvalidSpec"),
    ],
)
def test_the_reason_why_a_local_queue_admits_nothing_is_written_at_once(
    desk: Desk, spoil: Any, reason: str
) -> None:
    desk.rest()
    spoil(desk)
    desk.look()
    assert desk.active() == ("False", reason)


def test_a_label_of_the_namespace_opens_its_local_queue(desk: Desk) -> None:
    desk.add(queue("q", namespace_selector=SELECTOR))
    desk.rest()
    desk.add(Namespace(Meta(name=NAMESPACE, labels={"a": "b"})))
    desk.look()
    assert desk.active() == ("True", "Ready")


def test_only_those_that_changed_are_written(desk: Desk) -> None:
    for number in range(50):
        desk.put_queues(f"other-{number}", "r")
    desk.rest()
    desk.add(labelled("g"))
    assert set(desk.look()) == {"lq"}
    desk.add(queue("r", stop_policy="Hold"))
    assert set(desk.look()) == {f"other-{number}" for number in range(50)}


def test_numbers_share_a_budget(desk: Desk) -> None:
    names = [f"other-{number}" for number in range(50)]
    for name in names:
        desk.put_queues(name)
    desk.rest()
    desk.add([labelled(f"g-{name}", to=name) for name in names])
    written = desk.look(0.0)
    assert len(written) <= desk.reporter.burst
    for _ in range(40):
        written += desk.look()
    assert set(written) == set(names)


def test_a_deleted_local_queue_is_forgotten(desk: Desk) -> None:
    desk.rest()
    del desk.store.stored["lq"]
    desk.copies.drop(f"{NAMESPACE}/lq")
    desk.ledger.intake.drop_local_queue(f"{NAMESPACE}/lq")
    assert desk.look() == []
    assert not desk.reporter.waiting


def test_conditions_of_others_stay(desk: Desk) -> None:
    theirs = {"type": "Theirs", "status": "True", "reason": "", "message": ""}
    desk.store.stored["lq"]["status"]["conditions"] = [theirs]
    desk.put_queues()
    desk.rest()
    assert [each["type"] for each in desk.status()["conditions"]] == ["Theirs", "Active"]


def test_whether_kueue_is_there_is_looked_up() -> None:
    bench, api = Bench(labelled(label="kueue.x-k8s.io/queue-name")), LocalQueueApi()
    presence = KueuePresence(bench.ledger, api)
    api.fail("serves", Unreachable("away"))
    presence.poll()
    assert presence.holds is None
    assert bench.settle().decision("g").queue == f"{NAMESPACE}/lq"
    api.served = {KUEUE_LOCAL_QUEUES[1]}
    presence.start()
    presence.stop()
    assert bench.settle().decision("g").queue == "default"
