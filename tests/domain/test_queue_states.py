"""The states of a queue: a single one, and a tree of them."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.queues import Queue
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.queues.records import QueueRecord, queue_record
from extender.domain.queues.states import (
    AnnotationStep,
    QueueAction,
    annotation_step,
    closing_ancestor,
    desired_state,
    read_state,
    state_of,
)
from extender.domain.snapshot.decisions import QueueDecision, conditions_of
from tests.domain.builders import group, pod, queue
from tests.domain.world import World, gang, nodes
from tests.rows import each_of

OPEN, CLOSED, CLOSING, UNKNOWN = "Open", "Closed", "Closing", "Unknown"


@each_of(
    ("", "", OPEN, OPEN),
    ("", OPEN, OPEN, OPEN),
    ("", CLOSED, CLOSING, CLOSED),
    ("", CLOSING, CLOSING, CLOSED),
    ("", UNKNOWN, UNKNOWN, UNKNOWN),
    ("", "Ajar", UNKNOWN, UNKNOWN),
    (OPEN, "", OPEN, OPEN),
    (OPEN, CLOSED, OPEN, OPEN),
    (OPEN, CLOSING, OPEN, OPEN),
    (OPEN, UNKNOWN, OPEN, OPEN),
    (CLOSED, "", CLOSING, CLOSED),
    (CLOSED, OPEN, CLOSING, CLOSED),
    (CLOSED, CLOSED, CLOSING, CLOSED),
    (CLOSED, UNKNOWN, CLOSING, CLOSED),
    (CLOSING, OPEN, UNKNOWN, UNKNOWN),
    ("Ajar", OPEN, UNKNOWN, UNKNOWN),
)
def test_the_state_of_a_queue(spec: str, status: str, with_groups: str, without: str) -> None:
    desired = desired_state(queue_record(queue("q", spec_state=spec, status_state=status)))
    assert (state_of(desired, True), state_of(desired, False)) == (with_groups, without)


@each_of(("", OPEN), (OPEN, OPEN), (CLOSED, CLOSED), (UNKNOWN, UNKNOWN), ("open", None))
def test_which_words_are_states(word: str, state: str | None) -> None:
    assert read_state(word) == state


@each_of(("OpenQueue", OPEN), ("CloseQueue", CLOSED))
def test_each_queue_action_requests_its_state(action: str, state: str) -> None:
    assert QueueAction(action).spec_state == state


def test_a_queue_whose_numbers_make_no_sense_has_a_state_all_the_same() -> None:
    record = queue_record(queue("q", capability={"cpu": "four"}, spec_state=CLOSED, parent="team"))
    assert (record.spec_state, record.parent, bool(record.fault)) == (CLOSED, "team", True)


# ---- a queue that is being deleted, and kept by finalizers


def deleting() -> Queue:
    new_queue = queue("q", spec_state=OPEN, status_state=OPEN)
    return replace(new_queue, metadata=replace(new_queue.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))


def test_a_queue_that_is_being_deleted_starts_its_groups_and_accepts_none() -> None:
    """Its state is open: that changes nothing."""
    world = World(*nodes("n"), queue("q"), gang("early", 1, queue="q")).settle()
    world.add(deleting()).add(gang("late", 1, queue="q")).settle()
    assert (world.verdict("early"), world.reason("late")) == (Verdict.STARTING, Reason.QUEUE_NOT_OPEN)
    assert world.detail("late") == "queue q is Closing, because it is being deleted"
    (opened, *_) = conditions_of(world.queue("q"))
    assert (opened.holds, opened.reason) == (False, "Deleting")
    assert state_of(desired_state(queue_record(deleting())), has_groups=False) == CLOSED


# ---- parents and children


class Tree:
    """`team` below root, `child` below team, with what the controllers write to them."""

    def __init__(self, child: str = "") -> None:
        new_queue = queue("child", parent="team", spec_state=child)
        self.records = {"team": queue("team"), "child": new_queue}
        self.world = World(nodes("a"), *self.records.values())
        self.settle()

    def settle(self) -> "Tree":
        """Write marks and states until nothing changes any more."""
        for _ in range(10):
            before = dict(self.records)
            decisions = self.world.settle().decisions.queues
            for name in self.records:
                self._write(name, decisions[name])
            if before == self.records:
                return self
        raise AssertionError("never settles")

    def _write(self, name: str, decision: QueueDecision) -> None:
        """Write only the annotation or the state, the annotation first, as if a crash came between them."""
        now = self.records[name]
        if decision.mark is not AnnotationStep.KEEP:
            marks = {keys.CLOSED_BY_PARENT: "true"} if decision.mark is AnnotationStep.ADD else {}
            now = replace(now, metadata=replace(now.metadata, annotations=marks))
        else:
            now = replace(now, status=replace(now.status, state=decision.state))
        self.records[name] = now
        self.world.add(now)

    def asks(self, name: str, state: str) -> "Tree":
        now = self.records[name]
        self.records[name] = replace(now, spec=replace(now.spec, state=state))
        self.world.add(self.records[name])
        return self.settle()

    def state(self, name: str) -> str:
        return self.world.queue(name).state

    def is_closed_by_parent(self, name: str) -> bool:
        return queue_record(self.records[name]).was_closed_by_parent


@each_of(
    ("", "", OPEN),
    (OPEN, "", OPEN),
    (CLOSED, "", CLOSED),
    ("", CLOSED, CLOSED),
    (CLOSED, OPEN, OPEN),
)
def test_a_child_closes_and_opens_with_its_parent_unless_it_is_closed_for_its_own_sake(
    child: str, meanwhile: str, state: str
) -> None:
    """`meanwhile`: what a user asks for it while the parent is closed."""
    tree = Tree(child).asks("team", CLOSED)
    if meanwhile:
        tree.asks("child", meanwhile)
    assert (tree.state("child"), tree.is_closed_by_parent("child")) == (CLOSED, state == OPEN)
    assert tree.records["child"].spec.state == (meanwhile or child)
    tree.asks("team", OPEN)
    assert (tree.state("child"), tree.is_closed_by_parent("child")) == (state, False)


def test_a_child_with_groups_is_closing() -> None:
    tree = Tree()
    tree.world.add(gang("g", 1, queue="child"))
    tree.settle().asks("team", CLOSED)
    assert (tree.state("team"), tree.state("child")) == (CLOSED, CLOSING)
    assert tree.world.verdict("g") is Verdict.STARTING


def test_grandchildren_follow() -> None:
    tree = Tree()
    tree.records["grandchild"] = queue("grandchild", parent="child")
    tree.world.add(tree.records["grandchild"])
    tree.settle().asks("team", CLOSED)
    assert tree.state("grandchild") == CLOSED
    assert tree.world.queue("grandchild").closed_above == "team"
    assert tree.asks("team", OPEN).state("grandchild") == OPEN


def test_root_is_above_those_that_name_no_parent() -> None:
    tree = Tree()
    tree.world.add(queue("root", spec_state=CLOSED))
    assert {tree.settle().state("team"), tree.state("child")} == {CLOSED}
    tree.world.add(queue("root"))
    assert {tree.settle().state("team"), tree.state("child")} == {OPEN}


def test_a_group_below_a_closed_parent_starts_when_the_parent_opens() -> None:
    tree = Tree().asks("team", CLOSED)
    tree.world.add(gang("g", 1, queue="child")).settle()
    assert tree.world.reason("g") is Reason.QUEUE_NOT_OPEN
    assert tree.world.detail("g") == "queue child is Closing, because queue team above it is closed"
    tree.world.add(queue("team", spec_state=OPEN)).settle()
    assert tree.world.verdict("g") is Verdict.STARTING


def test_a_missing_parent_closes_no_queue() -> None:
    tree = Tree().asks("team", CLOSED)
    tree.world.ledger.intake.drop_queue("team")
    del tree.records["team"]
    assert tree.settle().state("child") == OPEN


def test_queues_in_a_ring_do_not_hang() -> None:
    world = World(queue("a", parent="b"), queue("b", parent="a"), queue("c", parent="c", spec_state=CLOSED))
    states = {name: each.state for name, each in world.settle().decisions.queues.items()}
    assert (states["a"], states["b"], states["c"]) == (OPEN, OPEN, CLOSED)


STATES = st.sampled_from(["", OPEN, CLOSED, CLOSING, UNKNOWN, "Ajar"])
NAMES = st.sampled_from(["a", "b", "c", "root", ""])
RECORDS = st.builds(
    QueueRecord,
    st.just("?"),
    spec_state=STATES,
    status_state=STATES,
    parent=NAMES,
    was_closed_by_parent=st.booleans(),
    is_deleting=st.booleans(),
)


@given(st.fixed_dictionaries(dict.fromkeys(("a", "b", "c", "root"), RECORDS)))
def test_records_and_states_settle(records: dict[str, QueueRecord]) -> None:
    """Write each change once in any state; after that nothing is left to write."""
    for _ in range(4 * len(records)):
        if (after := {name: _written(name, records) for name in records}) == records:
            return
        records = after
    raise AssertionError("never settles")


def _written(name: str, records: dict[str, QueueRecord]) -> QueueRecord:
    now, below = records[name], bool(closing_ancestor(name, records))
    match annotation_step(now, below):
        case AnnotationStep.KEEP:
            return replace(
                now, status_state=str(state_of(desired_state(now), False, now.was_closed_by_parent and below))
            )
        case mark:
            return replace(now, was_closed_by_parent=mark is AnnotationStep.ADD)


# ---- groups of a queue that is gone


def orphans(world: World) -> list[str]:
    return [orphan.name for orphan in world.settle().decisions.orphans]


def test_a_queue_that_vanishes_takes_its_groups_with_it() -> None:
    world = World(nodes("a"), queue("q"), group("g", 1, "q", queue_uid="uid-q"), pod("g-0", "g"))
    assert orphans(world) == []
    world.ledger.intake.drop_queue("q")
    assert orphans(world) == ["g"]


def test_a_group_that_came_before_its_queue_waits() -> None:
    world = World(nodes("a"), group("g", 1, "q"), pod("g-0", "g"))
    assert orphans(world) == []
    assert world.reason("g") is Reason.QUEUE_NOT_FOUND


def test_a_queue_that_is_recreated_is_another() -> None:
    world = World(nodes("a"), queue("q", uid="new"), group("old", 1, "q", queue_uid="uid-q"))
    assert orphans(world.add(group("young", 1, "q", queue_uid="new"))) == ["old"]


def test_a_copy_of_a_group_is_not_taken_for_the_group() -> None:
    """Ignore all annotations of a copy, as applied from a file or restored from a backup."""
    copied = group("g", 1, "q", queue_uid="uid-q", uid="original")
    copied = replace(copied, metadata=replace(copied.metadata, uid="copy"))
    assert orphans(World(nodes("a"), copied)) == []


def test_the_groups_of_the_default_queue_wait_until_it_is_made_again() -> None:
    world = World(nodes("a"), group("g", 1, "default", queue_uid="uid-default"), pod("g-0", "g"))
    assert orphans(world) == []
    assert world.verdict("g") is Verdict.STARTING


def test_a_group_that_is_gone_is_no_orphan() -> None:
    world = World(nodes("a"), group("g", 1, "q", queue_uid="uid-q"))
    (orphan,) = world.settle().decisions.orphans
    assert (orphan.namespace, orphan.uid, orphan.queue) == ("team", "uid-g", "q")
    world.ledger.intake.drop_group(world.decision("g").key)
    assert orphans(world) == []
