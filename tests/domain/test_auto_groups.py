"""Pods without a group name: which of them form a group, and no change when their PodGroup appears."""

from typing import Any

from msgspec.structs import replace

from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.queues import (
    AlphaPodGroup,
    GangPolicy,
    NativePodGroup,
    NativePodGroupSpec,
    PluginsPodGroup,
    PodGroup,
    PodGroupSpec,
    SchedulingPolicy,
)
from extender.api.workloads.gangs import IN_TURN_TEXT, Defaults, MadePods, gang_size_of
from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.ownership import OwnerRecord, owner_record
from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import Origin
from extender.domain.model.wire_records import group_record, whole_record
from extender.domain.snapshot.auto_podgroups import AutoGroup, PlainPods, PodGroupStep, build, next_step
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.phases import Phase
from tests.domain.builders import NAMESPACE, foreign_pod, group, node, owner, pod, queue
from tests.domain.world import World, key
from tests.rows import each_of

GROUP = "podgroup-uid-web"


def world(*objects: Any) -> World:
    return World(*objects, auto_groups=True).settle()


def replicas(count: int, **more: Any) -> list[Any]:
    return [pod(f"web-{n}", owner="web", **more) for n in range(count)]


# ---- which pods share a group


def test_a_pod_without_an_owner_gets_its_own_group() -> None:
    cluster = world(node("n"), pod("a"), pod("b"))
    assert cluster.verdicts("podgroup-uid-a", "podgroup-uid-b") == [Verdict.STARTING] * 2


def test_pods_of_one_owner_are_one_group_and_the_first_does_not_wait_for_the_others() -> None:
    cluster = world(node("n"), owner("web"), replicas(3)).start(GROUP)
    cluster.scheduler_takes(*cluster.plan(GROUP)).settle()
    assert all(cluster.stage(f"web-{n}") is ClaimStage.BOUND for n in range(3))


def test_an_owner_may_ask_for_several_to_start_together() -> None:
    cluster = world(node("n", cpu="2"), owner("web", "3"), replicas(3))
    assert cluster.verdict(GROUP) is Verdict.WAITING
    cluster.add(node("n", cpu="3")).settle()
    assert len(cluster.plan(GROUP)) == 3


def test_pods_that_are_created_in_turn_wait_with_that_as_their_reason() -> None:
    cluster = world(node("n"), owner("db", "2", replicas=2, policy="OrderedReady"), pod("db-0", owner="db"))
    group = "podgroup-uid-db"
    assert cluster.reason(group) is Reason.INVALID_SPEC
    assert IN_TURN_TEXT in cluster.detail(group)


def test_an_ordered_group_that_ran_fully_grows_pod_by_pod() -> None:
    cluster = world(node("n"), owner("db", "2", replicas=1, policy="OrderedReady"), pod("db-0", owner="db"))
    cluster.start("podgroup-uid-db")
    cluster.add(owner("db", "2", replicas=2, policy="OrderedReady"), pod("db-1", owner="db")).settle()
    assert cluster.plan("podgroup-uid-db").keys() == {"db-1"}


@each_of("", "none", "-1", "1.5", "99999999999")
def test_an_invalid_number_of_members_is_one(number: str) -> None:
    assert gang_size_of(owner_record(owner("web", number)).gang, "", Defaults(), waits=False).members == 1


def test_an_owner_that_comes_after_its_pods_is_heard() -> None:
    cluster = world(node("n"), replicas(1))
    assert cluster.verdict(GROUP) is Verdict.STARTING
    cluster.add(owner("web", "2")).settle()
    assert cluster.reason(GROUP) is Reason.NOT_ENOUGH_MEMBERS


def test_switched_off_each_pod_is_on_its_own() -> None:
    cluster = World(node("n"), owner("web", "3"), replicas(2)).settle()
    assert cluster.verdicts("pod:web-0", "pod:web-1") == [Verdict.STARTING] * 2


# ---- what is to be done about its PodGroup


def auto_group(**facts: Any) -> AutoGroup:
    """Return a group without a PodGroup whose pods wait, in an open queue by default."""
    combinations = {
        "min_member": None,
        "owner": None,
        "queue_is_open": True,
        "has_live_pods": True,
        "has_pods": True,
    }
    needed = 2 if facts.get("owner") is WANTS_TWO else 1
    return AutoGroup(**{**combinations, "member_count": needed, "is_used": True, **facts})


WANTS_TWO, IDLE_OWNER = OwnerRecord("uid-web", MadePods(volcano=2)), OwnerRecord("uid-web", is_idle=True)
GONE = {"has_live_pods": False, "has_pods": False, "is_used": False}


@each_of(
    ({}, PodGroupStep.MAKE),
    ({"owner": WANTS_TWO}, PodGroupStep.MAKE),
    ({"queue_is_open": False}, PodGroupStep.AWAIT_QUEUE),
    ({"has_live_pods": False}, PodGroupStep.NOTHING),
    ({"has_live_pods": False, "queue_is_open": False}, PodGroupStep.NOTHING),
    ({"min_member": 1}, PodGroupStep.NOTHING),
    ({"min_member": 1, "queue_is_open": False}, PodGroupStep.NOTHING),
    ({"min_member": 2, "owner": WANTS_TWO}, PodGroupStep.NOTHING),
    ({"min_member": 1, "owner": WANTS_TWO}, PodGroupStep.RENUMBER),
    ({"min_member": 1, "owner": WANTS_TWO, "queue_is_open": False}, PodGroupStep.RENUMBER),
    ({"min_member": 1, "owner": WANTS_TWO, **GONE}, PodGroupStep.NOTHING),
    ({"min_member": 1, "owner": IDLE_OWNER}, PodGroupStep.NOTHING),
    ({"min_member": 1, "owner": IDLE_OWNER, **GONE}, PodGroupStep.DELETE),
    ({"min_member": 1, "owner": IDLE_OWNER, **GONE, "queue_is_open": False}, PodGroupStep.DELETE),
    ({"min_member": 1, "owner": IDLE_OWNER, **GONE, "is_used": True}, PodGroupStep.NOTHING),
    ({"min_member": 1, **GONE}, PodGroupStep.NOTHING),
    ({"owner": IDLE_OWNER, **GONE}, PodGroupStep.NOTHING),
)
def test_each_step(facts: dict[str, Any], expected: PodGroupStep) -> None:
    assert next_step(auto_group(**facts)) is expected


# ---- its queue is closed


def closing(*objects: Any) -> World:
    """Return a world where the group of web waits, with its PodGroup, after its queue was closed."""
    cluster = world(node("full", cpu="0"), queue("q"), replicas(2, queue="q"), group(GROUP, 1, "q"), *objects)
    return cluster.add(queue("q", spec_state="Closed")).settle()


def state(cluster: World) -> tuple[str, dict[str, int]]:
    decided = cluster.decisions.queues["q"]
    return decided.state, {name: count for name, count in decided.counts.items() if count}


def test_pods_whose_group_is_deleted_wait_outside_the_closed_queue_until_it_opens() -> None:
    cluster = closing()
    assert state(cluster) == ("Closing", {"pending": 1})
    cluster.ledger.intake.drop_group(key(GROUP))
    cluster.add(node("n")).settle()
    assert cluster.reason(GROUP) is Reason.QUEUE_NOT_OPEN
    assert state(cluster) == ("Closed", {})
    cluster.add(queue("q", spec_state="Open")).settle()
    assert cluster.verdict(GROUP) is Verdict.STARTING
    assert state(cluster)[0] == "Open"


def test_pods_on_nodes_keep_the_queue_closing_until_they_are_gone() -> None:
    cluster = closing(node("n", cpu="1"), pod("web-9", GROUP, queue="q", owner="web", on="n"))
    cluster.ledger.intake.drop_group(key(GROUP))
    assert state(cluster.settle()) == ("Closing", {"running": 1})
    cluster.delete("web-9")
    assert state(cluster.settle()) == ("Closed", {})


def test_pods_that_came_in_time_are_let_in_before_their_group_is_written() -> None:
    cluster = world(node("full", cpu="0"), queue("q"), replicas(1, queue="q"))
    cluster.add(queue("q", spec_state="Closed")).settle()
    assert state(cluster) == ("Closing", {"pending": 1})
    assert cluster.add(node("n")).settle().verdict(GROUP) is Verdict.STARTING


def test_a_group_that_does_not_exist_is_waited_for_and_keeps_no_queue_from_closing() -> None:
    cluster = world(node("n"), queue("q"), pod("a", "missing", queue="q", owner="web"))
    cluster.add(queue("q", spec_state="Closed")).settle()
    assert cluster.reason("missing") is Reason.GROUP_NOT_FOUND
    assert state(cluster) == ("Closed", {})


# ---- the PodGroup comes


def test_no_claim_changes_when_the_podgroup_is_created_during_a_start() -> None:
    cluster = world(node("a", cpu="2"), node("b", cpu="2"), owner("web", "2"), replicas(2))
    cluster.answer("web-0"), cluster.hold("web-0", cluster.plan(GROUP)["web-0"])
    before = [cluster.claim(f"web-{n}") for n in range(2)]
    cluster.add(group(GROUP, 2)).settle()
    assert [cluster.claim(f"web-{n}") for n in range(2)] == before
    assert cluster.verdict(GROUP) is Verdict.STARTING


def test_no_claim_changes_when_a_pod_gets_the_name_of_its_group() -> None:
    cluster = world(node("n"), owner("web"), replicas(1))
    before = cluster.claim("web-0")
    cluster.add(group(GROUP, 1), pod("web-0", GROUP, owner="web")).settle()
    after = cluster.claim("web-0")
    assert before is not None
    assert after is not None
    assert (after.node, after.stage) == (before.node, before.stage)


def test_a_group_that_runs_stays_whole_when_its_podgroup_comes_and_goes() -> None:
    cluster = world(node("n"), owner("web", "2"), replicas(2)).start(GROUP)
    assert cluster.stood_whole(GROUP)
    cluster.add(group(GROUP, 2, uid="1")).settle()
    assert cluster.stood_whole(GROUP)
    cluster.ledger.intake.drop_group(cluster.decision(GROUP).key)
    cluster.settle()
    assert cluster.stood_whole(GROUP)
    assert cluster.decision(GROUP).life.phase is Phase.RUNNING


def test_the_podgroup_decides_once_it_is_there() -> None:
    cluster = world(node("n"), queue("q"), owner("web", "2"), replicas(1), group(GROUP, 1, "q"))
    assert (cluster.verdict(GROUP), cluster.decision(GROUP).queue) == (Verdict.STARTING, "q")


def test_a_suspended_owner_aborts_its_group() -> None:
    cluster = world(node("n"), owner("web", suspended=True), group(GROUP, 1))
    assert cluster.decision(GROUP).life.outcome is Outcome.ABORTED
    cluster.add(owner("web")).settle()
    assert cluster.decision(GROUP).life.outcome is None


# ---- plain pods without a PodGroup, which most of them are while they do not wait

PLAIN = "podgroup-uid-a"


def early_and_late(*objects: Any) -> World:
    """Return a world with two plain pods without capacity for either."""
    pods = (pod("a", queue="q", created="2026-01-01"), pod("b", queue="q", created="2026-01-02"))
    return world(node("n", cpu="1"), foreign_pod("s", on="n"), queue("q"), *pods, *objects)


def test_a_podgroup_that_comes_late_costs_no_place_in_line() -> None:
    """Without one, people know it by its pod."""
    cluster = early_and_late()
    assert cluster.ledger.snapshot().groups[key(PLAIN)].display_name == f"{NAMESPACE}/pod/a"
    cluster.add(group(PLAIN, 1, "q", created="2026-01-03")).settle()
    assert [cluster.decision(name).position for name in (PLAIN, "podgroup-uid-b")] == [1, 2]


def closing_with(**plain: Any) -> World:
    """Return a new process that knows a plain pod without a PodGroup, whose queue is closed."""
    return world(node("n"), queue("q", spec_state="Closed"), pod("a", queue="q", **plain))


def test_a_new_process_counts_one_that_runs_where_it_says_and_lets_it_run() -> None:
    cluster = closing_with(on="n")
    assert (cluster.verdict(PLAIN), cluster.decision(PLAIN).undo) == (Verdict.RUNNING, ())
    assert state(cluster) == ("Closing", {"running": 1})
    assert cluster.queue("q").allocated["cpu"] == 1000
    cluster.delete("a")
    assert state(cluster.settle()) == ("Closed", {})


def test_a_new_process_undoes_none_that_is_bound_and_does_not_run_yet() -> None:
    cluster = closing_with(on="n", phase="Pending")
    assert not cluster.advance(600).settle().decision(PLAIN).undo
    assert (cluster.reason(PLAIN), state(cluster)) == (None, ("Closing", {"running": 1}))


@each_of(
    (PlainPods.ALWAYS, None, None, True),
    (PlainPods.ALWAYS, Verdict.RUNNING, None, True),
    (PlainPods.WAITING, None, None, False),
    (PlainPods.WAITING, Verdict.STARTING, Reason.REFUSED_BY_SCHEDULER, False),
    (PlainPods.WAITING, Verdict.WAITING, Reason.WINDOW_FULL, False),
    (PlainPods.WAITING, Verdict.WAITING, Reason.NO_ROOM, True),
    (PlainPods.WAITING, Verdict.RUNNING, None, False),
    (PlainPods.NEVER, Verdict.WAITING, Reason.NO_ROOM, False),
)
def test_a_pod_needs_a_podgroup_by_its_decision(
    setting: PlainPods, verdict: Verdict | None, reason: Reason | None, needs_one: bool
) -> None:
    decision = GroupDecision(key(PLAIN), "q", verdict, reason) if verdict else None
    assert setting.need_podgroup(decision) is needs_one


def test_a_plain_pod_gets_no_podgroup_that_it_does_not_need() -> None:
    assert next_step(auto_group(), needs_none=True) is PodGroupStep.NOTHING
    assert next_step(auto_group(queue_is_open=False), needs_none=True) is PodGroupStep.NOTHING


# ---- what is built


def test_a_podgroup_as_it_is_made() -> None:
    inherited = {"volcano.sh/jdb-max-unavailable": "1", "volcano.sh/x": "1", "example.org/y": "2"}
    built = build(
        replace(pod("web-0", owner="web", cpu="500m", annotations={"volcano.sh/jdb-min-available": "2"})),
        owner_record(owner("web", "3", annotations=inherited)),
        3,
        "q",
    )
    owners = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
    ]
    assert built == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": GROUP,
            "namespace": NAMESPACE,
            "ownerReferences": owners,
            "annotations": {"volcano.sh/x": "1", "volcano.sh/jdb-min-available": "2"},
        },
        "spec": {"minMember": 3, "queue": "q", "minResources": {"cpu": "1500m"}},
        "status": {"phase": "Pending"},
    }


def test_a_pod_on_its_own_owns_its_podgroup() -> None:
    (reference,) = build(pod("a"), OwnerRecord("uid-a"), 1, "q")["metadata"]["ownerReferences"]
    assert reference == {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a", "controller": True}


# ---- groups of other kinds


def meta(name: str, **annotations: str) -> Meta:
    return Meta(name=name, namespace=NAMESPACE, uid=f"other-{name}", annotations=annotations)


def plugins(name: str, min_member: int) -> PluginsPodGroup:
    return PluginsPodGroup(meta(name), PodGroupSpec(min_member))


def native(name: str, min_count: int, of: type[NativePodGroup] = NativePodGroup) -> NativePodGroup:
    policy = SchedulingPolicy(GangPolicy(min_count) if min_count else None)
    return of(meta(name), NativePodGroupSpec(policy))


def alpha(name: str, min_count: int) -> NativePodGroup:
    return native(name, min_count, AlphaPodGroup)


@each_of(plugins, native, alpha)
def test_a_group_of_another_kind_starts_whole(kind: Any) -> None:
    cluster = world(node("n", cpu="1"), kind("g", 2), pod("g-0", "g"), pod("g-1", "g"))
    assert (cluster.verdict("g"), cluster.reason("g")) == (Verdict.WAITING, Reason.NEVER_FITS)
    cluster.add(node("n", cpu="2")).settle()
    assert len(cluster.plan("g")) == 2


def test_a_native_group_without_a_gang_policy_is_no_gang() -> None:
    assert world(node("n"), native("g", 0), pod("g-0", "g")).verdict("g") is Verdict.STARTING


def test_each_version_of_a_native_group_goes_without_the_other() -> None:
    """Delete one version alone: during an upgrade of the API server, both may be known for a short time."""
    cluster = world(node("n"), native("g", 2), alpha("g", 3), pod("g-0", "g"))
    cluster.ledger.intake.drop_group(cluster.decision("g").key, Origin.ALPHA)
    assert cluster.settle().detail("g") == "1 of 2 members exist"


def test_volcanos_group_comes_first_and_another_takes_its_place() -> None:
    cluster = world(node("n"), native("g", 3), plugins("g", 2), group("g", 1), pod("g-0", "g"))
    assert cluster.verdict("g") is Verdict.STARTING
    cluster.ledger.intake.drop_group(cluster.decision("g").key)
    assert cluster.settle().detail("g") == "1 of 2 members exist"


def test_a_full_run_is_read_from_its_record() -> None:
    recorded = PluginsPodGroup(meta("g", **whole_record("other-g", 2)), PodGroupSpec(2))
    cluster = world(node("n"), recorded, pod("g-0", "g", on="n"))
    assert cluster.stood_whole("g")


def test_an_owners_name_that_no_object_can_have_is_said_in_short() -> None:
    """The API server takes any: all who wait for such a group would have it in their status."""
    named = OwnerReference("batch/v1", "Job", "j" * 250_000, "uid-web", True)
    record = group_record(PodGroup(Meta(GROUP, NAMESPACE, "u", owner_references=[named])))
    assert record.stands_for == f"job/{'j' * 36}…"
    assert len(record.series) < 100
