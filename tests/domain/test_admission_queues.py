"""Queues that are created, changed or deleted: what is refused, and with which messages."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from extender.api.objects.queues import Queue
from extender.domain.admission.faults import Code, join_faults
from extender.domain.admission.queues import review_deletion, review_queue
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.queues.tree import QueueTree
from tests.domain.builders import SCHEDULER, group, pod

Spec = Mapping[str, Any]
TREE: dict[str, Spec] = {
    "root": {},
    "a": {"capability": {"cpu": "10"}, "guarantee": {"resource": {"cpu": "6"}}, "deserved": {"cpu": "8"}},
    "b": {"parent": "a"},
    "c": {"parent": "b", "capability": {"cpu": "4"}, "deserved": {"cpu": "2"}},
    "shut": {"state": "Closed"},
    "closing": {"state": "Closed"},
}


def queue(name: str, spec: Spec, annotations: Mapping[str, str] = {}, state: str = "") -> Queue:
    plain = {"metadata": {"name": name, "annotations": annotations}, "spec": spec, "status": {"state": state}}
    return msgspec.convert(plain, Queue)


@pytest.fixture
def ledger() -> Ledger:
    new_ledger = Ledger(Ownership(frozenset({SCHEDULER})))
    for name, spec in TREE.items():
        new_ledger.intake.set_queue(queue(name, spec))
    new_ledger.intake.set_group(group("g", 1, queue="closing"))
    new_ledger.pods.set_pod(pod("p", queue="shut", on="n"))
    new_ledger.snapshot()
    return new_ledger


@pytest.fixture
def tree(ledger: Ledger) -> QueueTree:
    return ledger.queues.tree()


def codes(new: Queue, tree: QueueTree, before: Queue | None = None, depth: int = 5) -> list[Code]:
    return [fault.code for fault in review_queue(new, before, tree, depth)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"weight": 0}, [Code.WEIGHT_BELOW_MIN]),
        ({"state": "Closing"}, [Code.INVALID_STATE]),
        ({"capability": {"cpu": "1"}, "deserved": {"cpu": "1"}}, []),
        (
            {"deserved": {"cpu": "1"}, "guarantee": {"resource": {"cpu": "1001m"}}},
            [Code.DESERVED_BELOW_GUARANTEE],
        ),
        ({"guarantee": {"resource": {"x.io/gpu": "1"}}}, [Code.DESERVED_BELOW_GUARANTEE]),
        ({"capability": {"cpu": "1"}, "deserved": {"cpu": "2"}}, [Code.DESERVED_ABOVE_CAPABILITY]),
        ({"capability": {"cpu": "1"}, "deserved": {"memory": "2"}}, []),
        (
            {"flavors": [{"name": "a", "capability": {"cpu": "1"}, "guarantee": {"cpu": "2"}}]},
            [Code.DESERVED_ABOVE_CAPABILITY],
        ),
        (
            {"flavors": [{"name": "a", "capability": {"cpu": "1"}, "deserved": {"cpu": "2", "x.io/y": "1"}}]},
            [Code.DESERVED_ABOVE_CAPABILITY],
        ),
        (
            {"flavors": [{"name": "a", "capability": {"cpu": "x"}, "deserved": {"cpu": "2"}}]},
            [Code.NOT_A_QUANTITY],
        ),
        ({"deserved": {"cpu": "-1"}, "guarantee": {"resource": {"memory": "1"}}}, [Code.NEGATIVE_QUANTITY]),
        ({"deserved": {"cpu": "two"}}, [Code.NOT_A_QUANTITY]),
        ({"capability": {"mem": "1Gi"}}, [Code.NOT_A_RESOURCE]),
        ({"weight": 0, "deserved": {"cpu": "-1"}}, [Code.WEIGHT_BELOW_MIN, Code.NEGATIVE_QUANTITY]),
        ({"parent": "new"}, [Code.SELF_PARENT]),
        ({"parent": "nowhere"}, [Code.PARENT_NOT_FOUND]),
        ({"parent": "shut"}, [Code.PARENT_HAS_PODS]),
        ({"parent": "root", "capability": {"cpu": "1000"}}, []),
        ({"parent": "b", "capability": {"cpu": "11"}}, [Code.CAPABILITY_ABOVE_ANCESTOR]),
        ({"parent": "a", "capability": {"memory": "1Ti"}}, []),
        ({"parent": "a", "deserved": {"cpu": "8"}, "guarantee": {"resource": {"cpu": "6"}}}, []),
        (
            {"parent": "a", "deserved": {"cpu": "9"}, "guarantee": {"resource": {"cpu": "7"}}},
            [Code.CHILDREN_GUARANTEE_SUM],
        ),
        ({"parent": "a", "deserved": {"cpu": "9"}}, [Code.CHILDREN_DESERVED_SUM]),
    ],
    ids=str,
)
def test_a_new_queue(spec: Spec, expected: list[Code], tree: QueueTree) -> None:
    assert codes(queue("new", spec), tree) == expected


@pytest.mark.parametrize(
    ("path", "weights", "expected"),
    [
        ("root/a", "1/2", []),
        ("root/a", "1", [Code.HIERARCHY_LENGTH_MISMATCH]),
        ("root/a", "1/x", [Code.HIERARCHY_WEIGHT_NOT_NUMBER]),
        ("root/a", "1/nan", [Code.HIERARCHY_WEIGHT_NOT_NUMBER]),
        ("root/a", "1/0", [Code.HIERARCHY_WEIGHT_NOT_POSITIVE]),
        ("root/sci", "1/1", [Code.HIERARCHY_SUBPATH]),
        ("root/sc", "1/1", []),
    ],
)
def test_paths(path: str, weights: str, expected: list[Code], ledger: Ledger) -> None:
    annotated = {"volcano.sh/hierarchy": "root/sci/dev", "volcano.sh/hierarchy-weights": "1/1/1"}
    ledger.intake.set_queue(queue("sci", {}, annotated))
    annotations = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
    assert codes(queue("new", {}, annotations), ledger.queues.tree()) == expected


def test_a_queue_does_not_go_below_itself_nor_too_deep(tree: QueueTree) -> None:
    before = queue("a", TREE["a"])
    assert codes(queue("a", {**TREE["a"], "parent": "c"}), tree, before) == [Code.SELF_PARENT]
    assert codes(queue("new", {"parent": "c"}), tree, depth=4) == []
    assert codes(queue("new", {"parent": "c"}), tree, depth=3) == [Code.DEPTH_EXCEEDED]
    moved = queue("b", {"parent": "shut"})
    assert codes(moved, tree, queue("b", TREE["b"]), depth=2) == [Code.DEPTH_EXCEEDED]


def test_a_queue_is_not_made_smaller_than_those_below(tree: QueueTree) -> None:
    before = queue("b", TREE["b"])
    lower = queue("b", {"parent": "a", "capability": {"cpu": "3"}})
    assert codes(lower, tree, before) == [Code.CAPABILITY_BELOW_DESCENDANT]
    enough = queue("b", {"parent": "a", "capability": {"cpu": "4"}, "deserved": {"cpu": "2"}})
    assert codes(enough, tree, before) == []


def test_unchanged_amounts_are_not_reviewed_against_siblings(tree: QueueTree) -> None:
    """Accept changes that leave the amounts alone, even if siblings break a rule.

    The queues may have been written before the webhooks existed: closing one must not fail because of
    that.
    """
    assert codes(queue("b", {"parent": "a"}), tree) == [Code.CHILDREN_DESERVED_SUM]
    before = queue("b", {"parent": "a"})
    assert codes(queue("b", {"parent": "a", "state": "Closed"}), tree, before) == []


def test_roots_amounts_do_not_change(tree: QueueTree) -> None:
    before = queue("root", {"capability": {"cpu": "1000m"}})
    assert codes(queue("root", {"capability": {"cpu": "1"}, "weight": 3}), tree, before) == []
    assert codes(queue("root", {"capability": {"cpu": "2"}}), tree, before) == [Code.ROOT_IMMUTABLE]
    unreadable = queue("root", {"capability": {"memory": "junk"}})
    assert codes(queue("root", {"capability": {"cpu": "2"}}), tree, unreadable) == [Code.ROOT_IMMUTABLE]


def test_a_state_that_is_there_may_stay(tree: QueueTree) -> None:
    assert codes(queue("q", {"weight": 2}, state="Closing"), tree, queue("q", {}, state="Closing")) == []
    assert codes(queue("q", {}, state="Closing"), tree) == [Code.INVALID_STATE]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", [Code.PROTECTED_QUEUE]),
        ("root", [Code.PROTECTED_QUEUE]),
        ("nowhere", [Code.QUEUE_NOT_FOUND]),
        ("a", [Code.HAS_CHILDREN]),
        ("shut", [Code.HAS_ALLOCATED_PODS]),
        ("closing", [Code.NOT_CLOSED]),
        ("c", [Code.NOT_CLOSED]),
    ],
)
def test_deletions_of_queues_in_use_are_refused(name: str, expected: list[Code], tree: QueueTree) -> None:
    assert [fault.code for fault in review_deletion(name, tree)] == expected


def test_a_closed_queue_may_be_deleted(ledger: Ledger) -> None:
    ledger.intake.set_queue(queue("gone", {"state": "Closed"}))
    assert review_deletion("gone", ledger.queues.tree()) == []


def test_refusals_name_field_value_and_remedy(tree: QueueTree) -> None:
    spec = {"parent": "a", "capability": {"cpu": "12"}}
    assert join_faults(review_queue(queue("new", spec), None, tree, 5)) == (
        "spec.capability[cpu]: invalid value 12: must be at most 10, the capability of queue 'a' above it"
    )


def test_a_circle_of_parents_ends(ledger: Ledger) -> None:
    ledger.intake.set_queue(queue("x", {"parent": "y"}))
    ledger.intake.set_queue(queue("y", {"parent": "x"}))
    limits = {"capability": {"cpu": "1"}}
    assert (
        codes(queue("x", {"parent": "y", **limits}), ledger.queues.tree(), queue("x", {"parent": "y"})) == []
    )
    assert codes(queue("z", {"parent": "x"}), ledger.queues.tree()) == []
