"""Quotas of other systems become queues; what is wrong with one costs itself only."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import ElasticQuota, ElasticQuotaTree, Namespace, ResourceQuota
from extender.api.objects.queues import Guarantee, Queue, QueueLimits, QueueSpec, QueueStatus
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.model.resources import offered, total
from extender.domain.queues.quota_records import (
    QuotaPlan,
    QuotaQueue,
    QuotaSource,
    QuotaStep,
    annotations_of,
    queue_name,
    queue_patch,
    spec_of,
    step_of,
)
from extender.domain.queues.quotas import Quotas, TreeReader, plan_of
from tests.domain.builders import NAMESPACE, group, pod, queue
from tests.domain.world import World
from tests.rows import each_of

Json = dict[str, Any]
DEPTH = 5
SEED = Path(__file__).parents[1] / "e2e" / "data" / "elastic-quota-tree.yaml"
_SEED: Json = yaml.safe_load(SEED.read_text())


def tree(
    root: object, name: str = "tree", namespace: str = "kube-system", created: str = ""
) -> ElasticQuotaTree:
    meta = {"name": name, "namespace": namespace, "creationTimestamp": created or None}
    return msgspec.json.decode(json.dumps({"metadata": meta, "spec": {"root": root}}), type=ElasticQuotaTree)


def node(name: str, most: Any = None, least: Any = None, *children: object, **more: Any) -> Json:
    amounts = {
        "max": {"cpu": most} if most is not None else None,
        "min": {"cpu": least} if least is not None else None,
    }
    return {"name": name, **amounts, "children": list(children), **more}


def root(*children: object) -> Json:
    return node("root", 100, 100, *children)


def planned(*roots: object) -> QuotaPlan:
    return plan_of(Quotas([tree(each, f"tree-{number}") for number, each in enumerate(roots)]), DEPTH)


def faults(plan: QuotaPlan) -> list[str]:
    return [str(fault) for fault in plan.faults]


def elastic(namespace: str, **spec: Any) -> ElasticQuota:
    metadata = {"name": "quota", "namespace": namespace}
    return msgspec.convert({"metadata": metadata, "spec": spec}, ElasticQuota)


def resource(namespace: str, name: str = "quota", **spec: Any) -> ResourceQuota:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, ResourceQuota)


# ---- trees


def test_the_tree_of_the_article() -> None:
    plan = plan_of(Quotas([msgspec.json.decode(json.dumps(_SEED), type=ElasticQuotaTree)]), DEPTH)
    top, leaf = plan.queues.values()
    assert (top.name, top.parent, top.guarantee) == ("root-quota", "root", {})
    assert (leaf.name, leaf.parent, leaf.namespaces) == ("child-1", "root-quota", ("default",))
    assert top.capability == leaf.capability == {"cpu": 1, "memory": "1Gi"}
    assert plan.namespaces == {"default": "child-1"}
    assert str(leaf.source) == "ElasticQuotaTree/kube-system/elasticquotatree"
    assert plan.faults == ()


def test_the_root_guarantees_the_sum_of_its_nodes_and_not_the_whole_cluster() -> None:
    plan = planned(root(node("a", 50, 20), node("b", 50, "500m"), node("c", 50)))
    assert plan.queues["root-quota"].guarantee == {"cpu": "20500m"}
    assert plan.queues["a"].guarantee == {"cpu": 20}


def test_the_number_of_jobs_is_a_limit_on_groups() -> None:
    jobs = {"name": "root", "max": {"cpu": 1, "kube-queue/max-jobs": 10_000_000_000}}
    few = {"name": "few", "max": {"cpu": 1, "kube-queue/max-jobs": 1}}
    plan = planned({**jobs, "children": [few]})
    assert [each.max_groups for each in plan.queues.values()] == [2**31 - 1, 1]
    assert plan.queues["few"].capability == {"cpu": 1}


def test_a_zero_quota_is_a_limit_of_zero() -> None:
    """A Queue's capability of 0 cpu or memory means no limit."""
    plan = planned(node("root", 0))
    assert offered(plan.queues["root-quota"].capability) == {"cpu": 1}


@each_of(0.5, "500m", "0.5")
def test_amounts_as_people_write_them(amount: object) -> None:
    assert offered(planned(root(node("a", amount))).queues["a"].capability) == {"cpu": 500}


BAD = [
    (node("x", -1), "node 'x': max[cpu]: invalid value -1: must be 0 or more"),
    (node("x", 1, 2), "node 'x': min[cpu]: invalid value 2: must be the max, 1, or less"),
    (node("x", "many"), "node 'x': max[cpu]: invalid value 'many' "),
    (node("x", True), "node 'x': max[cpu]: invalid value 'True' "),
    (node("x", [1]), "node 'x': max[cpu]: invalid value '[1]' "),
    (node("x", 101), "node 'x': max[cpu]: invalid value 101: must be at most 100, the max of 'root'"),
    (node("x", 100, 96), "node 'x': min[cpu]: invalid value 96: the min of its parent leaves 95 to it"),
]


@each_of(*BAD)
def test_a_bad_node_stays_as_it_was_and_the_rest_is_applied(bad: Json, message: str) -> None:
    below = {**bad, "children": [node("below", 1, namespaces=["n"])]}
    plan = planned(root(node("good", 5, 5), below, node("later", 5)))
    assert [each.name for each in plan.queues.values() if not each.is_unreadable] == [
        "root-quota",
        "good",
        "later",
    ]
    assert [each.name for each in plan.queues.values() if each.is_unreadable] == ["x", "below"]
    assert plan.namespaces == {"n": "below"}
    (fault,) = faults(plan)
    assert fault.startswith(message)
    assert offered(plan.queues["root-quota"].guarantee) == {"cpu": 5000}


@each_of(7, None, "x", {"name": 7}, {"name": "x", "namespaces": "n"}, {"name": ""})
def test_nothing_is_concluded_from_an_unreadable_node(bad: object) -> None:
    plan = planned(root(node("a", 1), bad))
    assert [*plan.queues] == ["root-quota", "a"]
    assert plan.unsure_quotas == {"ElasticQuotaTree/kube-system/tree-0"}
    assert faults(plan)[0].startswith("spec.root.children[1]: it ")


def test_a_name_counts_once() -> None:
    plan = planned(root(node("a", 1), node("a", 2, None, node("b", 1)), node("c", 1)))
    assert [*plan.queues] == ["root-quota", "a", "c"]
    assert plan.queues["a"].capability == {"cpu": 1}
    assert faults(plan) == [
        "node 'a': spec.root.children[1] has the name of another node; each name is allowed once"
    ]


def test_a_namespace_enters_one_queue_and_only_a_leaf() -> None:
    inner = node("inner", 1, None, node("leaf", 1, namespaces=["n", "m"]), namespaces=["o"])
    plan = planned(root(inner, node("late", 1, namespaces=["m", "p"])))
    assert plan.namespaces == {"n": "leaf", "m": "leaf", "p": "late"}
    assert faults(plan) == [
        "node 'inner': namespaces: only nodes without children have namespaces",
        "queue 'late': namespace 'm' enters queue 'leaf' already",
    ]


def test_a_tree_that_is_too_deep_ends_where_it_may() -> None:
    deep = node("n9", 1)
    for number in reversed(range(9)):
        deep = node(f"n{number}", 1, None, deep)
    plan = planned(deep)
    assert [*plan.queues] == ["n0", "n1", "n2", "n3", "n4"]
    assert faults(plan) == ["node 'n5': it is on level 6; at most 5 are allowed"]


def test_the_older_of_two_quota_trees_counts_and_only_in_its_namespace() -> None:
    young = tree(root(node("a", 1), node("b", 1)), "young", created="2026-02-01T00:00:00Z")
    old = tree(root(node("a", 2)), "old", created="2026-01-01T00:00:00Z")
    mine = tree(root(node("mine", 1)), "mine", "team")
    plan = plan_of(Quotas([young, old, mine]), DEPTH)
    assert {str(each.source).rpartition("/")[2] for each in plan.queues.values()} == {"old"}
    assert {fault.source.name for fault in plan.faults} == {"young", "mine"}


def test_the_tree_of_the_page_makes_the_queues_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "quotas.md").read_text()
    shown = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    plan = plan_of(Quotas([msgspec.json.decode(json.dumps(shown), type=ElasticQuotaTree)]), DEPTH)
    assert {each.name: each.parent for each in plan.queues.values()} == {
        "root-quota": "root",
        "research": "root-quota",
        "reports": "root-quota",
    }
    assert plan.namespaces == {"vision": "research", "speech": "research", "reports": "reports"}
    assert plan.queues["reports"].max_groups == 5
    assert plan.faults == ()


def test_a_quota_that_makes_us_raise_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = []

    def review(source: str, act: Callable[[], object]) -> bool:
        try:
            act()
        except ZeroDivisionError:
            failed.append(source)
        return not failed or failed[-1] != source

    def poisoned(each: ElasticQuotaTree, depth: int) -> object:
        return 1 / 0 if each.metadata.name == "bad" else TreeReader(each, depth)

    monkeypatch.setattr("extender.domain.queues.quotas.TreeReader", poisoned)
    plan = plan_of(Quotas([tree(root(), "bad"), tree(node("top"), "good")]), DEPTH, review)
    assert failed == ["ElasticQuotaTree/kube-system/bad"]
    assert plan.unsure_quotas == {*failed}
    assert [*plan.queues] == ["top"]


# ---- names


def test_names() -> None:
    assert queue_name("root.a.1") == "root.a.1"
    assert (queue_name("root"), queue_name("default")) == ("root-quota", "default-quota")
    assert queue_name("Team A").startswith("team-a-")
    assert len({queue_name("Team A"), queue_name("Team-A"), queue_name("team_a"), queue_name("队列")}) == 4


@given(st.text())
def test_every_name_becomes_one_that_a_label_takes(name: str) -> None:
    hashed = queue_name(name)
    assert len(hashed) <= 63
    assert hashed not in ("root", "default")
    assert queue_name(hashed) == hashed


# ---- quotas of one namespace


def test_an_elastic_quota_is_the_queue_of_its_namespace() -> None:
    plan = plan_of(Quotas(elastic_quotas=[elastic("default", min={"cpu": 1}, max={"cpu": 2})]), DEPTH)
    (new_queue,) = plan.queues.values()
    assert (new_queue.name, new_queue.parent, new_queue.namespaces) == ("default-quota", "root", ("default",))
    assert (new_queue.capability, new_queue.guarantee) == ({"cpu": 2}, {"cpu": 1})


def test_all_resource_quotas_of_a_namespace_hold_at_once() -> None:
    small = resource("team", "a", hard={"cpu": 4, "requests.memory": "1Gi", "limits.cpu": 1, "count/jobs": 1})
    large = resource("team", "b", hard={"requests.cpu": 3, "pods": 10, "requests.storage": "1Gi"})
    scoped = resource("team", "c", hard={"cpu": 1}, scopes=["BestEffort"])
    plan = plan_of(Quotas(resource_quotas=[scoped, large, small]), DEPTH)
    (new_queue,) = plan.queues.values()
    assert new_queue.capability == {"cpu": 3, "memory": "1Gi", "pods": 10}
    assert str(new_queue.source) == "ResourceQuota/team/a"


def test_a_tree_comes_before_elastic_quotas_and_those_before_resource_quotas() -> None:
    trees = [tree(root(node("leaf", 1, namespaces=["a"])))]
    both = [elastic("a", max={"cpu": 9}), elastic("b", max={"cpu": 8})]
    hard = [resource(each, hard={"cpu": 1}) for each in "abc"]
    plan = plan_of(Quotas(trees, both, hard), DEPTH)
    assert plan.namespaces == {"a": "leaf", "b": "b", "c": "c"}
    assert [*plan.queues] == ["root-quota", "leaf", "b", "c"]
    assert faults(plan) == ["queue 'a': namespace 'a' enters queue 'leaf' already"]


# ---- invariants

_ROUNDING = 1 + 1e-12  # sums of floats
_AMOUNTS = st.one_of(
    st.integers(-3, 30),
    st.sampled_from(["1", "500m", "x", "1e3", "-1"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none(),
)
_NODES: Any = st.recursive(
    st.builds(
        node, st.sampled_from("abcdefg"), _AMOUNTS, _AMOUNTS, namespaces=st.lists(st.sampled_from("nmop"))
    ),
    lambda below: st.one_of(
        st.builds(node, st.sampled_from("abcdefg"), _AMOUNTS, _AMOUNTS, below, below),
        st.integers(),
        st.just({}),
    ),
    max_leaves=12,
)


@given(st.lists(_NODES, max_size=3))
def test_queues_of_any_quota_tree_are_consistent(roots: list[Any]) -> None:
    plan = planned(*roots)
    readable = {name: each for name, each in plan.queues.items() if not each.is_unreadable}
    for name, each in readable.items():
        assert each.parent == "root" or each.parent in readable
        below = [child for child in readable.values() if child.parent == name]
        promised = total(offered(child.guarantee) for child in below)
        own = offered(each.guarantee)
        assert all(amount <= own.get(key, 0) * _ROUNDING for key, amount in promised.items())
        most = offered(each.capability)
        assert all(0 <= amount <= most.get(key, amount) for key, amount in own.items())
        assert all(
            offered(child.capability).get(key, 0) <= amount for child in below for key, amount in most.items()
        )
    assert set(plan.namespaces.values()) <= plan.queues.keys()


# ---- steps

SOURCE = QuotaSource("v1", "ElasticQuotaTree", "kube-system", "tree")
WANTED_QUEUE = QuotaQueue("q", SOURCE, "root", {"cpu": 2}, {"cpu": 1}, 3, ("a", "b"))


def quota_queue(
    wanted: QuotaQueue = WANTED_QUEUE, ended: bool = False, state: str = "", status: str = "Open"
) -> Queue:
    spec = msgspec.convert(spec_of(wanted), QueueSpec)
    notes = annotations_of(wanted) | ({keys.QUOTA_ENDED: "true"} if ended else {})
    return Queue(
        Meta(name="q", annotations=notes), msgspec.structs.replace(spec, state=state), QueueStatus(status)
    )


def test_steps() -> None:
    unreadable = msgspec.structs.replace(WANTED_QUEUE, is_unreadable=True)
    assert step_of(WANTED_QUEUE, None, is_empty=True) is QuotaStep.CREATE
    assert step_of(unreadable, None, is_empty=True) is QuotaStep.NOTHING
    assert step_of(WANTED_QUEUE, quota_queue(), is_empty=False) is QuotaStep.NOTHING
    assert step_of(WANTED_QUEUE, queue("q"), is_empty=False) is QuotaStep.LEAVE
    assert step_of(None, queue("q"), is_empty=True) is QuotaStep.NOTHING
    assert step_of(None, quota_queue(), is_empty=True) is QuotaStep.CLOSE
    assert (
        step_of(None, quota_queue(ended=True, state="Closed", status="Closed"), is_empty=False)
        is QuotaStep.NOTHING
    )
    assert (
        step_of(None, quota_queue(ended=True, state="Closed", status="Closing"), is_empty=True)
        is QuotaStep.NOTHING
    )
    assert (
        step_of(None, quota_queue(ended=True, state="Closed", status="Closed"), is_empty=True)
        is QuotaStep.DELETE
    )
    assert step_of(None, quota_queue(ended=True, state="Open"), is_empty=True) is QuotaStep.CLOSE
    assert step_of(WANTED_QUEUE, quota_queue(ended=True, state="Closed"), is_empty=True) is QuotaStep.CHANGE


def test_edits_of_a_quotas_queue_are_reverted_except_for_fields_of_its_owner() -> None:
    theirs = QueueSpec(
        weight=7,
        capability={"cpu": "2000m", "nvidia.com/gpu": 8},
        deserved={"cpu": "1"},
        guarantee=Guarantee({"cpu": "many"}),
        parent="other",
        limits=QueueLimits(groups=9, pods=4),
    )
    patch = queue_patch(WANTED_QUEUE, msgspec.structs.replace(quota_queue(), spec=theirs))
    assert patch == {
        "spec": {
            "capability": {"cpu": 2, "nvidia.com/gpu": None},
            "guarantee": {"resource": {"cpu": 1}},
            "parent": "root",
            "limits": {"groups": 3},
        }
    }
    assert queue_patch(WANTED_QUEUE, quota_queue(ended=True, state="Closed")) == {
        "metadata": {"annotations": {keys.QUOTA_ENDED: None}},
        "spec": {"state": "Open"},
    }


# ---- in the ledger


def test_pods_of_the_clusters_own_scheduler_are_ours_in_a_namespace_with_a_quota() -> None:
    ledger = Ledger(Ownership(frozenset({keys.DEFAULT_SCHEDULER})))
    plain = pod("p", scheduler=keys.DEFAULT_SCHEDULER, gated=False)
    assert not ledger.pods.owns(plain)
    ledger.intake.set_quota_namespaces({NAMESPACE: "q"})
    assert ledger.pods.owns(plain)


def namespace(queue_name: str) -> Namespace:
    return Namespace(Meta(name=NAMESPACE, annotations={keys.QUEUE: queue_name} if queue_name else None))


def test_a_namespace_without_an_annotation_enters_the_queue_of_its_quota() -> None:
    world = World(queue("q"), queue("own"), group("g", 1), pod("p", group="g"))
    assert world.settle().decision("g").queue == "default"
    world.ledger.intake.set_quota_namespaces({NAMESPACE: "q"})
    assert world.settle().decision("g").queue == "q"
    assert world.ledger.queues.queue_of_namespace(NAMESPACE) == "q"
    world.add(namespace("own"))
    assert world.settle().decision("g").queue == "own"
    changes_before = world.changes
    world.ledger.intake.set_quota_namespaces({NAMESPACE: "default"})
    assert world.changes == changes_before, "its annotation counts"
    world.add(namespace(""))
    assert world.settle().decision("g").queue == "default"
