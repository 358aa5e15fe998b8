"""Queues of quotas: made, changed back, closed and deleted; those of others are left alone."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from extender.api import keys
from extender.api.objects.cluster import ElasticQuotaTree, QuotaKind
from extender.api.objects.queues import Queue
from extender.controllers.objects import Objects, QueueCopy
from extender.controllers.quota_queues import QuotaObjects, QuotaQueuesController
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import Forbidden, Invalid
from extender.kube.reflector import Removed
from tests.controllers.queue_bench import QueueBench
from tests.domain.builders import group, queue

Json = dict[str, Any]
TREE = Removed("kube-system", "tree", "uid-tree")


class QuotaBench(QueueBench):
    def __init__(self) -> None:
        super().__init__()
        self.read = {"ElasticQuotaTree"}
        self.quotas = QuotaObjects(self.ledger, 5)
        self.queues = Objects().queues
        self.controller = QuotaQueuesController(
            self.means(self.store), self.recorder, self.quotas, self.queues, self.read.__contains__
        )

    def follow(self, queue: Queue) -> None:
        self.queues.put(queue.metadata.name, QueueCopy(queue, self.ledger.version))

    def plant(self, *children: Json) -> None:
        """Create a tree with these nodes below its root."""
        meta = {"name": "tree", "namespace": "kube-system", "uid": "uid-tree"}
        root = {"name": "root", "max": {"cpu": 10}, "min": {"cpu": 10}, "children": children}
        tree = json.dumps({"metadata": meta, "spec": {"root": root}})
        self.quotas.sinks[QuotaKind.ELASTIC_QUOTA_TREE].upsert(
            msgspec.json.decode(tree, type=ElasticQuotaTree)
        )

    def fell(self) -> None:
        self.quotas.sinks[QuotaKind.ELASTIC_QUOTA_TREE].remove(TREE)

    def look(self, seconds: float = 2.0) -> list[tuple[str, str]]:
        """Return the writes of one look, which the watch shows."""
        self.now += seconds
        self.store.calls = []
        self.quotas.refresh()
        self.controller.on_decisions(self.settle().decisions)
        self.flush()
        calls = [(call[0], call[1]) for call in self.store.calls]
        for name in {name for verb, name in calls if verb == "delete"} - self.store.queues.keys():
            self.queues.drop(name)
            self.ledger.intake.drop_queue(name)
        self.show_all()
        return sorted(calls)

    def publish(self, *names: str) -> None:
        """Write the states of queues, as Muster's controller of states does."""
        for name in names:
            self.store._change(name, {"status": {"state": "Closed"}})
            self.show(name)

    def event_messages(self) -> list[str]:
        return [message for _, reason, message in self.events() if reason == "QuotaNotApplied"]


@pytest.fixture
def bench() -> Iterator[QuotaBench]:
    new_bench = QuotaBench()
    with new_bench.writing():
        yield new_bench


@pytest.fixture
def planted(bench: QuotaBench) -> QuotaBench:
    """Return a tree with one leaf, whose queues exist."""
    bench.plant({"name": "leaf", "max": {"cpu": 5}, "namespaces": ["team"]})
    assert [bench.look() for _ in range(3)] == [[("create", "root-quota")], [("create", "leaf")], []]
    return bench


def test_queues_are_created_parents_first_and_name_their_quota(planted: QuotaBench) -> None:
    copy = planted.copy("leaf")
    assert copy.metadata.annotations == {
        keys.QUOTA_SOURCE: "ElasticQuotaTree/kube-system/tree",
        keys.QUOTA_NAMESPACES: "team",
    }
    assert (copy.spec.parent, copy.spec.capability) == ("root-quota", {"cpu": 5})
    assert planted.ledger.queues.queue_of_namespace("team") == "leaf"


def test_a_changed_tree_changes_its_queue_and_a_manual_edit_is_reverted(planted: QuotaBench) -> None:
    planted.plant({"name": "leaf", "max": {"cpu": 6}})
    assert planted.look() == [("patch_queue", "leaf")]
    assert planted.copy("leaf").spec.capability == {"cpu": 6}
    assert planted.ledger.queues.queue_of_namespace("team") == ""
    planted.edit("leaf", capability={"cpu": 60, "memory": "1Gi"}, weight=9)
    assert planted.look() == [("patch_queue", "leaf")]
    spec = planted.copy("leaf").spec
    assert (spec.capability, spec.weight) == ({"cpu": 6}, 9)
    assert planted.look() == []


def test_a_controller_that_writes_the_same_field_causes_no_hot_loop(planted: QuotaBench) -> None:
    writes = []
    for number in range(20):
        planted.edit("leaf", capability={"cpu": 60 + number})
        writes += planted.look(seconds=0.1)
    assert 1 <= len(writes) <= 3


def test_a_queue_made_by_others_is_left_unchanged_and_reported(bench: QuotaBench) -> None:
    bench.put_queues(queue("leaf", weight=4))
    bench.plant({"name": "leaf", "max": {"cpu": 5}, "children": [{"name": "below"}]}, {"name": "other"})
    for _ in range(4):
        bench.look()
    assert {*bench.store.queues} == {"leaf", "root-quota", "other"}
    assert bench.copy("leaf").spec.capability is None
    (shown,) = bench.event_messages()
    assert "queue 'leaf': it exists and is not made from a quota" in shown
    del bench.store.queues["leaf"]
    bench.queues.drop("leaf")
    bench.ledger.intake.drop_queue("leaf")
    for _ in range(3):
        bench.look()
    assert bench.copy("below").spec.parent == "leaf"
    assert bench.controller.faults() == []


def test_queues_of_a_deleted_tree_are_closed_and_deleted_children_first_once_empty(
    planted: QuotaBench,
) -> None:
    planted.put_queues(queue("stranger"))
    planted.add(group("g", 1, "leaf"))
    planted.look()
    planted.fell()
    assert planted.look() == [("patch_queue", "leaf"), ("patch_queue", "root-quota")]
    assert planted.copy("leaf").spec.state == "Closed"
    planted.publish("leaf", "root-quota")
    assert [planted.look() for _ in range(3)] == [[], [], []], "a group is left"
    planted.ledger.intake.drop_group(planted.decision("g").key)
    assert planted.look() == [("delete", "leaf")]
    assert planted.look() == [("delete", "root-quota")]
    assert {*planted.store.queues} == {"stranger"}


def test_a_queue_in_the_record_of_a_group_is_not_deleted(planted: QuotaBench) -> None:
    """The group has moved on, but would be taken for one that the queue left behind."""
    planted.put_queues(queue("elsewhere"))
    planted.add(group("g", 1, "elsewhere", queue_uid="uid-leaf"))
    planted.fell()
    planted.look()
    planted.publish("leaf", "root-quota")
    assert [planted.look() for _ in range(2)] == [[], []]
    planted.add(group("g", 1, "elsewhere", queue_uid="uid-elsewhere"))
    assert planted.look() == [("delete", "leaf")]


def test_a_tree_that_is_created_again_opens_its_queues(planted: QuotaBench) -> None:
    planted.fell()
    planted.look()
    planted.plant({"name": "leaf", "max": {"cpu": 5}, "namespaces": ["team"]})
    assert planted.look() == [("patch_queue", "leaf"), ("patch_queue", "root-quota")]
    assert planted.copy("leaf").spec.state == "Open"
    assert keys.QUOTA_ENDED not in (planted.copy("leaf").metadata.annotations or {})


def test_no_queue_is_closed_while_a_quota_is_unread_or_invalid(planted: QuotaBench) -> None:
    """Keep all queues open, as after a restart or once the kind is switched off."""
    planted.fell()
    planted.read.clear()
    assert [planted.look() for _ in range(2)] == [[], []]
    planted.read.add("ElasticQuotaTree")
    planted.plant({"name": 7})
    assert [planted.look() for _ in range(2)] == [[], []]
    planted.plant({"name": "other"})
    assert ("patch_queue", "leaf") in planted.look()


def test_an_amount_that_cannot_be_read_leaves_the_queue_as_it_is(planted: QuotaBench) -> None:
    planted.plant({"name": "leaf", "max": {"cpu": -1}, "namespaces": ["team"]})
    assert [planted.look() for _ in range(2)] == [[], []]
    assert planted.ledger.queues.queue_of_namespace("team") == "leaf"
    (message,) = planted.event_messages()
    assert message.startswith("node 'leaf': max[cpu]: invalid value -1: ")


def test_a_refusal_of_the_api_server_is_reported_and_retried(bench: QuotaBench) -> None:
    bench.store.fail("create", Forbidden(403, "Forbidden", "not today"), Invalid(422, "Invalid", "not so"))
    bench.plant()
    for _ in range(6):
        bench.look(seconds=60)
    assert bench.event_messages()[0] == "queue 'root-quota': not today"
    assert "root-quota" in bench.store.queues
    assert bench.controller.faults() == []


def test_a_status_written_by_others_causes_no_new_plan(planted: QuotaBench) -> None:
    before = planted.quotas.plan
    planted.plant({"name": "leaf", "max": {"cpu": 5}, "namespaces": ["team"]})
    planted.look()
    assert planted.quotas.plan is before
    planted.plant({"name": "leaf", "max": {"cpu": 5}, "namespaces": []})
    planted.look()
    assert planted.ledger.queues.queue_of_namespace("team") == ""


def test_faults_beyond_the_first_are_counted(bench: QuotaBench) -> None:
    bench.plant(*({"name": f"n{number}", "max": {"cpu": -1}} for number in range(9)))
    bench.look()
    (shown,) = bench.event_messages()
    assert shown.count("invalid value -1") == 3
    assert shown.endswith("; and 6 more: see /debug/quotas")


def test_nothing_is_written_by_a_follower_or_before_the_queues_are_known(bench: QuotaBench) -> None:
    bench.plant()
    bench.controller.on_decisions(Decisions())
    bench.flush()
    bench.leading = False
    assert bench.look() == []
    bench.leading = True
    assert bench.look() == [("create", "root-quota")]
