"""minMember and minTaskMember."""

from collections import Counter

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Needs
from extender.domain.snapshot.wholeness import is_whole_with
from tests.domain.builders import group, node, pod
from tests.domain.world import World, gang
from tests.rows import each_of


@each_of(
    (3, {}, {"": 3}, True),
    (3, {}, {"": 2}, False),
    (3, {}, {"a": 1, "b": 2}, True),
    (0, {}, {}, True),
    (3, {"master": 1, "worker": 2}, {"master": 1, "worker": 2}, True),
    (3, {"master": 1, "worker": 2}, {"worker": 3}, False),
    (3, {"master": 1, "worker": 2}, {"master": 1, "worker": 1}, False),
    (3, {"master": 1, "worker": 2}, {"master": 2, "worker": 2}, True),
    (4, {"master": 1}, {"master": 1, "other": 2}, False),
    (4, {"master": 1}, {"master": 1, "other": 3}, True),
    (2, {"master": 1, "worker": 2}, {"worker": 2}, True),
    (2, {"master": 1, "worker": 2}, {"worker": 1}, False),
)
def test_whole(min_member: int, roles: dict[str, int], there: dict[str, int], is_whole: bool) -> None:
    assert is_whole_with(Needs(min_member, roles), Counter(there), sum(there.values())) is is_whole


ROLES = {"master": 1, "worker": 2}


def test_members_are_chosen_for_their_roles() -> None:
    workers = [pod(f"a-worker-{n}", "g", role="worker") for n in range(5)]
    world = World(node("n", cpu="3"), group("g", 3, roles=ROLES), workers, pod("master", "g", role="master"))
    assert set(world.settle().plan("g")) == {"master", "a-worker-0", "a-worker-1"}


def test_a_role_that_is_not_there_is_named() -> None:
    world = World(node("n"), group("g", 3, roles=ROLES), [pod(f"w{n}", "g", role="worker") for n in range(3)])
    assert world.settle().reason("g") is Reason.NOT_ENOUGH_MEMBERS
    assert world.detail("g") == "3 of 3 members exist, missing 1 of role master"


def test_few_of_thousands_of_missing_roles_are_named() -> None:
    """Limit the message, however long their names: it goes into a status, the log and events."""
    roles = {f"{number:05}" + "r" * 100_000: 1 for number in range(20)}
    world = World(node("n"), group("g", 20, roles=roles), pod("p", "g")).settle()
    assert world.detail("g").endswith(" and 12 more roles")
    assert len(world.detail("g")) < 1000


def test_members_that_gates_of_other_controllers_hold_are_reported() -> None:
    world = World(node("n"), gang("g", 2, foreign_gate="quota.example/gate")).settle()
    assert world.reason("g") is Reason.NOT_ENOUGH_MEMBERS
    assert world.detail("g") == "0 of 2 members exist; 2 held back by other scheduling gates"


def test_important_members_first() -> None:
    world = World(node("n", cpu="2"), group("g", 2))
    world.add(pod("a", "g"), pod("b", "g", priority=5), pod("c", "g", priority=9)).settle()
    assert set(world.plan("g")) == {"b", "c"}


def test_finished_members_count() -> None:
    world = World(node("n", cpu="3"), gang("g", 3)).start("g").finish("g-0", "g-1")
    assert world.settle().verdict("g") is Verdict.RUNNING
    assert world.reason("g") is None
