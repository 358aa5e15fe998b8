"""LocalQueues and the namespaces that a queue takes: who may enter where."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace
from extender.api.objects.pods import LabelSelector, Requirement
from extender.api.objects.queues import LocalQueue, LocalQueueSpec
from extender.domain.model.queue_of_group import LocalQueueLabel
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.results import ADMITTED, WAITING
from extender.domain.snapshot.auto_podgroups import build
from tests.domain.builders import NAMESPACE, group, node, pod, queue
from tests.domain.world import World, comparable, gang, key
from tests.property_examples import examples
from tests.rows import each_of

STARTS, WAITS, RUNS = Verdict.STARTING, Verdict.WAITING, Verdict.RUNNING
AI = {"team": "ai"}
SELECTS_AI = LabelSelector(match_labels=AI)


def local(name: str = "lq", to: str = "q", policy: str = "", namespace: str = NAMESPACE) -> LocalQueue:
    return LocalQueue(Meta(name=name, namespace=namespace, uid=f"uid-{name}"), LocalQueueSpec(to, policy))


def namespace(labels: dict[str, str] | None = None, queue_name: str = "") -> Namespace:
    return Namespace(
        Meta(name=NAMESPACE, labels=labels, annotations={keys.QUEUE: queue_name} if queue_name else None)
    )


def by_label(objects: Iterable[Any], name: str = "lq", label: str = keys.LOCAL_QUEUE) -> list[Any]:
    """Return the objects with the label on the PodGroup or, where there is none, on the pods."""
    things = list(objects)
    return [
        replace(each, metadata=replace(each.metadata, labels={label: name})) if number == 0 else each
        for number, each in enumerate(things)
    ]


def labelled(
    name: str = "g", members: int = 1, to: str = "lq", label: str = keys.LOCAL_QUEUE, **more: Any
) -> Any:
    return by_label(gang(name, members, **more), to, label)


def world_with(*objects: Any) -> World:
    return World(node("n", cpu="9"), queue("q"), queue("r"), *objects).settle()


def into(world: World, name: str = "g") -> tuple[str, Verdict, Reason | None]:
    decision = world.decision(name)
    return decision.queue, decision.verdict, decision.reason


# ---- which queue


@each_of(keys.LOCAL_QUEUE, keys.KUEUE_QUEUE)
def test_a_label_leads_into_the_queue_of_the_local_queue(label: str) -> None:
    world = world_with(local(), labelled(label=label))
    assert into(world) == ("q", STARTS, None)


@each_of(("", "", "q"), ("default", "", "q"), ("r", "", "r"), ("", "r", "q"), ("default", "r", "q"))
def test_a_named_queue_counts_first_and_that_of_the_namespace_last(
    named: str, annotated: str, expected: str
) -> None:
    world = world_with(local(), namespace(queue_name=annotated), labelled(queue=named))
    assert world.decision("g").queue == expected


def test_a_group_that_names_its_queue_does_not_count_in_a_local_queue() -> None:
    world = world_with(local(policy="Hold"), labelled(queue="r"))
    assert into(world) == ("r", STARTS, None)
    assert not world.decisions.local_counts


def test_pods_that_name_no_group_come_in_by_their_own_label() -> None:
    alone = replace(pod("p"), metadata=replace(pod("p").metadata, labels={keys.LOCAL_QUEUE: "lq"}))
    world = world_with(local(), alone)
    assert into(world, "pod:p") == ("q", STARTS, None)


def test_our_own_label_counts_before_kueues() -> None:
    labels = {keys.LOCAL_QUEUE: "lq", keys.KUEUE_QUEUE: "other"}
    record, *pods = gang("g", 1)
    both = replace(record, metadata=replace(record.metadata, labels=labels))
    world = world_with(local(), local("other", "r"), both, pods)
    assert world.decision("g").queue == "q"


def test_an_empty_label_names_nothing() -> None:
    assert world_with(local(), labelled(to="")).decision("g").queue == keys.DEFAULT_QUEUE


def test_a_local_queue_of_another_namespace_is_not_meant() -> None:
    world = world_with(local(namespace="elsewhere"), labelled())
    assert into(world)[1:] == (WAITS, Reason.QUEUE_NOT_FOUND)


# ---- what is missing or wrong


def test_without_the_local_queue_the_group_waits_and_says_so() -> None:
    world = world_with(labelled())
    assert into(world)[1:] == (WAITS, Reason.QUEUE_NOT_FOUND)
    assert world.detail("g") == f"LocalQueue {NAMESPACE}/lq does not exist"
    assert world.add(local()).settle().verdict("g") is STARTS


def test_a_local_queue_may_lead_to_a_queue_that_is_missing() -> None:
    world = world_with(local(to="later"), labelled())
    assert world.reason("g") is Reason.QUEUE_NOT_FOUND
    assert world.add(queue("later")).settle().verdict("g") is STARTS


@each_of(
    (local(to=""), f"LocalQueue {NAMESPACE}/lq: spec.queue names no queue"),
    (
        local(policy="Maybe"),
        f"LocalQueue {NAMESPACE}/lq: spec.stopPolicy is 'Maybe'; it must be one of None, Hold, HoldAndDrain",
    ),
)
def test_a_bad_local_queue_costs_its_own_groups_only(spoilt: LocalQueue, message: str) -> None:
    world = world_with(spoilt, labelled(), gang("h", 1, queue="q"))
    assert (world.reason("g"), world.detail("g")) == (Reason.INVALID_SPEC, message)
    assert world.verdict("h") is STARTS


@each_of(True, False)
def test_a_label_of_kueue_is_left_to_kueue_where_the_cluster_has_it(served: bool) -> None:
    world = world_with()
    world.ledger.intake.record_kueue(served)
    world.add(labelled(members=99, label=keys.KUEUE_QUEUE), labelled("own")).settle()
    in_default = (keys.DEFAULT_QUEUE, WAITS, Reason.NEVER_FITS)
    assert into(world) == (in_default if served else (f"{NAMESPACE}/lq", WAITS, Reason.QUEUE_NOT_FOUND))
    assert world.reason("own") is Reason.QUEUE_NOT_FOUND, "our own label is meant for no other controller"
    world.ledger.intake.drop_group(key("own"))
    world.add(local()).settle()
    assert world.decision("g").queue == "q", "a LocalQueue of ours takes the label over"


def test_labels_of_kueue_count_while_kueue_is_absent() -> None:
    world = world_with(labelled(label=keys.KUEUE_QUEUE, members=99))
    assert world.reason("g") is Reason.QUEUE_NOT_FOUND
    world.ledger.intake.record_kueue(True)
    assert world.settle().decision("g").queue == keys.DEFAULT_QUEUE
    world.ledger.intake.record_kueue(False)
    assert world.settle().reason("g") is Reason.QUEUE_NOT_FOUND


# ---- changes


def test_a_local_queue_that_is_hung_on_another_queue_takes_those_along_that_wait() -> None:
    world = world_with(local(), labelled(), labelled("big", 99)).start("g").run("g-0")
    assert (world.queue("q").allocated, world.queue("r").allocated) == ({"cpu": 1000, "pods": 1}, {})
    world.add(local(to="r")).settle()
    assert [world.decision(name).queue for name in ("g", "big")] == ["q", "r"]
    assert (world.queue("q").allocated, world.queue("r").allocated) == ({"cpu": 1000, "pods": 1}, {})
    assert world.verdict("g") is RUNS
    world.delete("g-0").add(pod("g-0", "g", uid="again")).settle()
    assert world.decision("g").queue == "r", "new starts begin there"


def test_running_groups_go_on_without_their_local_queue() -> None:
    world = world_with(local(), labelled("g", 2)).start("g").run("g-0", "g-1")
    world.ledger.intake.drop_local_queue(f"{NAMESPACE}/lq")
    world.settle()
    assert into(world) == ("q", RUNS, None)
    assert into(world.add(local(to="r")).settle()) == ("q", RUNS, None)


def test_a_change_touches_the_groups_of_the_local_queue_only() -> None:
    world = world_with(
        local(), local("other"), labelled(), labelled("h", to="other"), gang("i", 1, queue="q")
    )
    for change in (local(to="r"), local(to="r", policy="Hold")):
        before = world.ledger.snapshot().groups
        world.add(change)
        now = world.ledger.snapshot().groups
        assert {name for name in now if now[name] is not before[name]} == {key("g")}
    world.ledger.intake.drop_local_queue(f"{NAMESPACE}/lq")
    after = world.ledger.snapshot().groups
    assert {name for name in now if now[name] is not after[name]} == {key("g")}
    version = world.ledger.version
    world.add(local("other"))
    assert world.ledger.version == version, "nothing has changed"


def test_deleted_groups_and_local_queues_are_forgotten() -> None:
    world = world_with(local(), labelled())
    world.ledger.intake.drop_group(key("g"))
    world.delete("g-0")
    world.ledger.intake.drop_local_queue(f"{NAMESPACE}/lq")
    world.settle()
    routes = world.ledger.registry.routes
    left = [value for each in (routes, routes.local_queues) for value in vars(each).values()]
    assert not [each for each in left if isinstance(each, dict) and each]


# ---- stopPolicy


@each_of(("Hold", False), ("HoldAndDrain", True))
def test_a_stop_policy_concerns_the_groups_of_the_local_queue_only(policy: str, evicted: bool) -> None:
    world = world_with(local(), labelled("runs", 2), gang("other", 1, queue="q")).start("runs", "other")
    world.run("runs-0", "runs-1", "other-0").pass_time(60)
    world.add(local(policy=policy), labelled("new"), gang("free", 1, queue="q")).settle()
    assert (world.reason("new"), world.verdict("free")) == (Reason.QUEUE_STOPPED, STARTS)
    assert world.detail("new") == f"spec.stopPolicy of LocalQueue {NAMESPACE}/lq is {policy}"
    reasons = {eviction.victim.name: eviction.why for eviction in world.decisions.evictions.values()}
    why = f"LocalQueue {NAMESPACE}/lq is drained"
    assert reasons == (dict.fromkeys(("runs-0", "runs-1"), why) if evicted else {})
    world.add(local()).settle()
    assert (world.verdict("new"), world.decisions.evictions) == (STARTS, {})


def test_draining_begins_although_all_groups_rest() -> None:
    world = world_with(local(), labelled()).start("g").run("g-0")
    world.pass_time(60)
    world.settle()
    world.add(local(policy="HoldAndDrain"))
    assert world.settle().decisions.evictions


def test_groups_that_a_local_queue_does_not_admit_are_no_demand() -> None:
    world = World(node("n", cpu="4"), queue("q"), queue("r"), local(policy="Hold"))
    world.add(labelled("g", 4), gang("h", 4, queue="r")).settle()
    assert world.queue("r").deserved["cpu"] == 4000
    assert world.verdict("h") is STARTS


# ---- namespaceSelector


def test_a_queue_takes_groups_of_the_namespaces_that_it_selects() -> None:
    world = world_with(namespace(), queue("q", namespace_selector=SELECTS_AI), gang("g", 1, queue="q"))
    assert world.reason("g") is Reason.NAMESPACE_NOT_ALLOWED
    assert world.add(namespace(AI)).settle().verdict("g") is STARTS


def test_running_groups_go_on_in_a_namespace_that_is_not_selected_any_more() -> None:
    world = world_with(namespace(AI), queue("q", namespace_selector=SELECTS_AI), gang("g", 1, queue="q"))
    world.start("g").run("g-0").pass_time(60)
    world.add(namespace(), gang("new", 1, queue="q")).settle()
    assert (world.verdict("g"), world.reason("new")) == (RUNS, Reason.NAMESPACE_NOT_ALLOWED)
    assert not world.decisions.evictions


@each_of(
    (None, True),
    (LabelSelector(), True),
    (LabelSelector(match_labels={"team": "x"}), False),
    (LabelSelector(match_expressions=[Requirement("team", "In", ["ai", "x"])]), True),
    (LabelSelector(match_expressions=[Requirement("team", "NotIn", ["ai"])]), False),
    (LabelSelector(match_expressions=[Requirement("stage", "NotIn", ["ai"])]), True),
    (LabelSelector(match_expressions=[Requirement("team", "Exists")]), True),
    (LabelSelector(match_labels=AI, match_expressions=[Requirement("team", "DoesNotExist")]), False),
)
def test_selectors_have_the_meaning_of_kubernetes(selector: LabelSelector | None, allowed: bool) -> None:
    world = world_with(namespace(AI), queue("q", namespace_selector=selector), gang("g", 1, queue="q"))
    assert (world.verdict("g") is STARTS) is allowed


@each_of(
    (
        Requirement("team", "Gt", ["1"]),
        "operator 'Gt' of 'team' is not one of In, NotIn, Exists, DoesNotExist",
    ),
    (Requirement("team", "In"), "operator In of 'team' takes values"),
    (Requirement("team", "Exists", ["x"]), "operator Exists of 'team' takes no values"),
    (Requirement("", "Exists"), "an expression without a key"),
)
def test_a_selector_that_makes_no_sense_is_a_fault_of_the_queue(
    requirement: Requirement, message: str
) -> None:
    selector = LabelSelector(match_expressions=[requirement])
    world = world_with(
        queue("q", namespace_selector=selector), gang("g", 1, queue="q"), gang("h", 1, queue="r")
    )
    assert (world.reason("g"), world.verdict("h")) == (Reason.INVALID_SPEC, STARTS)
    assert world.detail("g") == f"queue q: spec.namespaceSelector: {message}"


# ---- numbers


def test_groups_are_counted_by_local_queue() -> None:
    world = world_with(local(), labelled(), labelled("big", 99), labelled("done")).start("g", "done")
    world.run("g-0", "done-0").settle()
    world.finish("done-0").settle()
    name = f"{NAMESPACE}/lq"
    assert world.decisions.local_counts == {(name, WAITING): 1, (name, ADMITTED): 1}
    assert world.ledger.queues.local_queue_allocation(name) == {"cpu": 1000, "pods": 1}
    world.ledger.intake.drop_group(key("big"))
    world.delete(*(f"big-{n}" for n in range(99))).settle()
    assert world.decisions.local_counts == {(name, ADMITTED): 1}


def test_a_made_podgroup_has_the_label_and_not_the_queue() -> None:
    built = build(pod("p"), None, 1, "q", LocalQueueLabel("lq", keys.KUEUE_QUEUE))
    assert built["metadata"]["labels"] == {keys.KUEUE_QUEUE: "lq"}
    assert "queue" not in built["spec"]


# ---- the order of events

EVENTS = {
    "node": lambda world: world.add(node("n", cpu="9")),
    "queues": lambda world: world.add(queue("q", namespace_selector=SELECTS_AI), queue("r")),
    "namespace": lambda world: world.add(namespace(AI, "r")),
    "first": lambda world: world.add(local()),
    "second": lambda world: world.add(local("other", "r", "Hold")),
    "group": lambda world: world.add(labelled()),
    "held": lambda world: world.add(labelled("h", to="other")),
    "lost": lambda world: world.add(labelled("i", to="missing")),
    "plain": lambda world: world.add(group("j", 1), pod("j-0", "j")),
    "kueue": lambda world: world.ledger.intake.record_kueue(True),
    "theirs": lambda world: world.add(labelled("k", to="missing", label=keys.KUEUE_QUEUE)),
}


@settings(max_examples=examples(25), deadline=None)
@given(st.permutations(sorted(EVENTS)), st.sets(st.integers(0, len(EVENTS))))
def test_the_order_of_events_does_not_matter(order: list[str], pauses: set[int]) -> None:
    world = World()
    for number, event in enumerate(order):
        EVENTS[event](world)
        if number in pauses:
            decide(world.ledger.snapshot())
    found = {name: into(world.settle(), name) for name in "ghijk"}
    assert found == {
        "g": ("q", STARTS, None),
        "h": ("r", WAITS, Reason.QUEUE_STOPPED),
        "i": (f"{NAMESPACE}/missing", WAITS, Reason.QUEUE_NOT_FOUND),
        "j": ("r", STARTS, None),
        "k": ("r", STARTS, None),
    }


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("lq", "other")),
            st.sampled_from(("q", "r", "gone", "")),
            st.sampled_from(("", "Hold", "HoldAndDrain", "?")),
        ),
        max_size=8,
    )
)
def test_the_last_version_of_a_local_queue_counts(changes: list[tuple[str, str, str]]) -> None:
    """Compare with a LocalQueue that has always been as it is."""
    groups = [*labelled("g", 99), *labelled("h", 99, to="other")]
    world = world_with(groups)
    for name, to, policy in changes:
        world.add(local(name, to, policy)).settle()
    last = {name: local(name, to, policy) for name, to, policy in changes}
    fresh = world_with(*last.values(), groups)
    assert {name: into(world, name) for name in "gh"} == {name: into(fresh, name) for name in "gh"}
    assert world.decisions.local_counts == fresh.decisions.local_counts
    assert comparable(decide(world.ledger.snapshot())).groups == comparable(world.decisions).groups
