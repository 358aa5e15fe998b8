"""Terms of what-if: each does what the real change would do, and invalid ones are named."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.objects.base import OwnerReference
from extender.api.objects.queues import QueueFlavor
from extender.domain.explain.what_if import BadTerm, WhatIf, suppositions, what_if, with_terms
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from tests.domain.builders import foreign_pod, group, node, pod, preemption, queue
from tests.domain.world import World, gang, key
from tests.property_examples import examples
from tests.rows import each_of

NEVER = preemption(within_queue="Never", unmanaged="Never")


def world(*objects: Any) -> World:
    """Return a world with a node of four cores, on which `runs` has three; `waits` wants two."""
    cluster = World(node("n"), queue("q", preemption=NEVER), queue("r", preemption=NEVER))
    cluster.add(gang("runs", 1, queue="q", cpu="3", created="2026-01-01")).start("runs")
    return cluster.add(gang("waits", 1, queue="q", cpu="2", created="2026-01-02"), *objects).settle()


def suppose(made: World, *terms: str, about: str = "waits") -> WhatIf:
    return what_if(made.ledger.snapshot(), suppositions(terms), key(about))


def starts(made: World, *terms: str, about: str = "waits") -> bool:
    found = suppose(made, *terms, about=about).group
    assert found is not None
    assert found.before.verdict is Verdict.WAITING
    return found.change == "starts"


def end_first_run(made: World) -> None:
    made.finish("runs-0").delete("runs-0")
    made.ledger.intake.drop_group(key("runs"))


def more(made: World) -> None:
    made.add(node("m", cpu="4"))


def heavier(made: World) -> None:
    made.add(queue("q", weight=9, preemption=NEVER))


@each_of(
    ("nodes=+1", more),
    ("nodes=+1:n", more),
    ("delete=podgroup/runs", end_first_run),
    ("delete=podgroup/team/runs", end_first_run),
    ("queue.weight=q:9", heavier),
)
def test_a_supposition_predicts_the_decision(term: str, really: Callable[[World], None]) -> None:
    cluster = world()
    supposed = suppose(cluster, term).group
    really(cluster)
    cluster.settle()
    assert supposed is not None
    assert (supposed.after.verdict, supposed.after.reason) == (
        cluster.verdict("waits"),
        str(cluster.reason("waits") or ""),
    )


GANGS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.sampled_from("qr"), st.booleans()),
    min_size=2,
    max_size=7,
)


@settings(max_examples=examples(60), deadline=None)
@given(gangs=GANGS, change=st.sampled_from(["delete", "nodes", "queue.weight"]))
def test_decisions_are_those_of_the_real_change(gangs: list[tuple[int, int, str, bool]], change: str) -> None:
    """The first gang is gone, or there is a node more, or a queue has another weight."""
    cluster = World(node("n", cpu="6"), node("m", cpu="4"), queue("q", weight=2), queue("r"))
    for number, (members, cpu, name, begins) in enumerate(gangs):
        called = f"g{number}"
        cluster.add(
            gang(called, members, queue=name, cpu=str(cpu), created=f"2026-01-0{number + 1}")
        ).settle()
        if begins and cluster.verdict(called) is Verdict.STARTING:
            cluster.start(called)
    terms = {
        "delete": "delete=podgroup/team/g0",
        "nodes": "nodes=+1:n",
        "queue.weight": "queue.weight=r:7",
    }
    supposed = decide(with_terms(cluster.ledger.snapshot(), suppositions([terms[change]])))
    match change:
        case "delete":
            cluster.delete(*[each.name for each in cluster.ledger.groups.members(key("g0"))])
            cluster.ledger.intake.drop_group(key("g0"))
        case "nodes":
            cluster.add(node("n2", cpu="6"))
        case "queue.weight":
            cluster.add(queue("r", weight=7))
    really = decide(cluster.ledger.snapshot())
    assert {
        group.key: (group.verdict, group.reason, len(group.plan)) for group in supposed.groups.values()
    } == {group.key: (group.verdict, group.reason, len(group.plan)) for group in really.groups.values()}


@each_of(("priority=1000", "NoRoom"), ("minMember=2", "NotEnoughMembers"))
def test_a_term_that_does_not_help_names_the_next_reason(term: str, reason: str) -> None:
    found = suppose(world(), term).group
    assert found is not None
    assert (found.before.reason, found.after.reason) == ("NoRoom", reason)


def test_one_more_node_is_not_enough_for_two_members_of_node_size() -> None:
    cluster = world(gang("wide", 2, queue="q", cpu="4", created="2026-01-03"))
    assert [starts(cluster, f"nodes=+{n}", "delete=podgroup/waits", about="wide") for n in (1, 2)] == [
        False,
        True,
    ]


def test_terms_are_applied_together() -> None:
    cluster = World(node("n", cpu="4"), queue("q", capability={"cpu": "1"}, preemption=NEVER))
    cluster.add(gang("waits", 1, queue="q", cpu="6")).settle()
    cluster.add(node("m", cpu="6")).settle()
    assert not starts(cluster, "queue.weight=q:3")
    assert starts(cluster, "queue.capability.cpu=q:6")
    assert starts(cluster, "queue.capability.cpu=q:7", "nodes=+1:m", "nodes=+1:m")


def test_fewer_members() -> None:
    cluster = World(node("n", cpu="4"), queue("q", preemption=NEVER)).add(
        gang("waits", 3, queue="q", cpu="2")
    )
    assert cluster.settle().reason("waits") is Reason.NEVER_FITS
    assert starts(cluster, "minMember=2")
    assert starts(cluster, "minMember=waits:2")
    assert not starts(cluster, "minMember=4")


def test_a_pod_of_others_that_is_gone() -> None:
    cluster = World(node("n", cpu="4"), queue("q", preemption=NEVER), foreign_pod("s", on="n", cpu="3"))
    cluster.add(gang("waits", 1, queue="q", cpu="2")).settle()
    assert starts(cluster, "delete=pod/s")


@each_of("delete=job/train", "delete=job/team/train", "delete=podgroup/podgroup-uid-train")
def test_a_workload_that_is_gone(term: str) -> None:
    """End the group that Muster made for pods of the workload."""
    owners = [OwnerReference("batch/v1", "Job", "train", "uid-train", True)]
    unit = group("podgroup-uid-train", 1, "q")
    unit = replace(unit, metadata=replace(unit.metadata, owner_references=owners))
    cluster = World(node("n", cpu="4"), queue("q", preemption=NEVER), unit)
    cluster.add(pod("train-0", "podgroup-uid-train", cpu="3")).start("podgroup-uid-train")
    cluster.add(gang("waits", 1, queue="q", cpu="2")).settle()
    assert starts(cluster, term)


def test_a_flavor_that_its_queue_may_not_use_yet() -> None:
    cluster = World(
        node("n", cpu="4", labels={"pool": "a"}),
        node("m", cpu="4", labels={"pool": "b"}),
        queue("q", preemption=NEVER, flavors=[QueueFlavor("a", {"pool": "a"})]),
        queue("r", preemption=NEVER, flavors=[QueueFlavor("b", {"pool": "b"})]),
    )
    cluster.add(gang("waits", 2, queue="q", cpu="4")).settle()
    assert not starts(cluster, "queue.weight=q:2")
    cluster.add(gang("small", 1, queue="q", cpu="4")).start("small").add(gang("after", 1, queue="q", cpu="4"))
    assert starts(cluster.settle(), "flavor=q:b", "delete=podgroup/waits", about="after")


def test_a_suggested_priority_names_the_groups_that_it_delays() -> None:
    """Name the other of two groups that want the last core of a kind, as it waits longer."""
    cluster = World(node("n", cpu="4"), queue("q", preemption=NEVER))
    cluster.add(gang("runs", 1, queue="q", cpu="4", created="2026-01-01")).start("runs")
    for number, name in enumerate(("first", "second"), start=2):
        cluster.add(gang(name, 1, queue="q", cpu="4", created=f"2026-01-0{number}"))
    found = suppose(cluster.settle(), "nodes=+1", "priority=5", about="second")
    assert found.group is not None
    assert found.group.change == "starts"
    freed = suppose(cluster, "delete=podgroup/runs", "priority=5", about="second")
    assert [(other.group, other.change) for other in freed.others] == []
    moved = suppose(cluster, "priority=5", about="second")
    assert moved.group is not None
    assert moved.group.change == "moves up"
    assert [(other.group, other.change) for other in moved.others] == [(key("first"), "is further back")]


def test_a_replay_with_terms_is_about_no_single_group() -> None:
    found = what_if(world().ledger.snapshot(), suppositions(["delete=podgroup/team/runs"]))
    assert found.group is None
    assert [(other.group, other.change) for other in found.others] == [(key("waits"), "starts")]


def test_the_snapshot_stays_as_it_is() -> None:
    snapshot = world().ledger.snapshot()
    before = decide(snapshot)
    terms = ["nodes=+2", "delete=podgroup/runs", "queue.deserved.cpu=q:3", "priority=7", "minMember=1"]
    what_if(snapshot, suppositions(terms), key("waits"))
    after = decide(snapshot)
    assert (after.groups, after.queues) == (before.groups, before.queues)


@each_of(
    ("", "'': must be nodes=+N"),
    ("nodes", "'nodes': must be nodes=+N or nodes=+N:LIKE-NODE"),
    (
        "nodes=2",
        "'nodes=2': must be nodes=+N or nodes=+N:LIKE-NODE, with N a whole number from 1 to 1000",
    ),
    ("nodes=+0", "from 1 to 1000"),
    ("nodes=+1001", "from 1 to 1000"),
    ("nodes=+٣", "from 1 to 1000"),
    ("nodes=+1:x", "'nodes=+1:x': there is no node x; there are n"),
    ("node=+1", "'node=+1': must be nodes=+N"),
    ("queue.weight=q", "must be queue.weight=QUEUE:N"),
    ("queue.weight=q:0", "from 1 to 2147483647"),
    ("queue.weight=q:two", "from 1 to 2147483647"),
    ("queue.weight=x:2", "'queue.weight=x:2': there is no queue x; there are default, q, r"),
    ("queue.weight.cpu=q:2", "must be queue.weight=QUEUE:N"),
    ("queue.capability=q:2", "must be queue.capability.RESOURCE=QUEUE:AMOUNT"),
    ("queue.capability.cpu=q:-1", "the amount has to be 0 or more"),
    ("queue.capability.cpu=q:lots", "'lots' is not "),
    ("queue.capability.gpus=q:1", "gpus is no resource that is counted"),
    ("queue.colour=q:1", "must be nodes=+N"),
    ("flavor=q:a", "queue q has no flavors: it may use all nodes"),
    ("minMember=0", "from 1 to 2147483647"),
    ("minMember=x:1", "'minMember=x:1': there is no podgroup team/x; there are team/runs, team/waits"),
    ("priority=high", "with N a whole number from -2147483647 to 2147483647"),
    ("delete=runs", "must be delete=KIND/[NAMESPACE/]NAME"),
    ("delete=podgroup/other/runs", "there is no podgroup other/runs"),
    ("delete=job/runs", "there is no job team/runs"),
    ("delete=node/n", "Muster knows a group of: must be delete=KIND/[NAMESPACE/]NAME of a podgroup"),
    ("delete=podgroup/waits", "this is what is asked about"),
)
def test_a_term_that_makes_no_sense_is_named(term: str, says: str) -> None:
    with pytest.raises(BadTerm) as fault:
        suppose(world(), term)
    assert says in str(fault.value)
    assert repr(term) in str(fault.value)


def test_a_group_that_runs_continues_with_more_nodes_like_its_own() -> None:
    found = suppose(world(), "nodes=+1", about="runs").group
    assert found is not None
    assert (found.after.verdict, found.change) == (Verdict.RUNNING, "")


@each_of("nodes=+1", "minMember=2", "delete=podgroup/runs")
def test_without_a_group_terms_need_full_names(term: str) -> None:
    with pytest.raises(BadTerm, match=r"LIKE-NODE|namespace"):
        with_terms(world().ledger.snapshot(), suppositions([term]))


def test_too_many_terms_are_refused() -> None:
    with pytest.raises(BadTerm, match="21 terms; at most 20"):
        suppositions(["nodes=+1"] * 21)


@each_of("nodes=+1:", "delete=podgroup/", "queue.weight=", "priority=")
def test_a_term_that_is_endless_is_not_said_again_as_a_whole(start: str) -> None:
    with pytest.raises(BadTerm) as fault:
        suppose(world(), start + "x" * 100_000 + ":1")
    assert str(fault.value).startswith(f"'{start}xxx")
    assert len(str(fault.value)) < 300
