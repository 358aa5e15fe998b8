"""Visible objects by viewer, as a table: nothing that `kubectl get` would refuse."""

from msgspec.structs import replace

from extender.api.summaries import (
    DecisionSummary,
    GroupDetails,
    GroupSummary,
    LocalQueueSummary,
    MemberSummary,
    NodeSummary,
    Overview,
    QueueSummary,
    ReservationSummary,
)
from extender.dashboard.source import LastHour
from extender.dashboard.visible_overviews import HIDDEN_GROUP, VisibleOverviews
from tests.dashboard.standins import SomeViewer
from tests.rows import each_of

ALL = Overview(
    "1",
    "2026-01-01T00:00:00Z",
    queues=[QueueSummary("q")],
    local_queues=[LocalQueueSummary("a", "way"), LocalQueueSummary("b", "way")],
    groups=[GroupSummary("a", "one"), GroupSummary("b", "two")],
    nodes=[NodeSummary("n1", groups=("a/one", "b/two"), reserved_for="b/two")],
    reservations=[ReservationSummary("a/one", "q", ("n1",)), ReservationSummary("b/two", "q", ("n1",))],
    decisions=[DecisionSummary("", "a/one", "Waiting"), DecisionSummary("", "b/two", "Waiting")],
)
NOT_B = {("list", "podgroups", ""), ("list", "podgroups", "b")}
NOTHING = {
    ("list", pod, place)
    for pod in ("podgroups", "queues", "localqueues", "nodes", "pods")
    for place in ("", "a", "b")
}


class One:
    all, shares, usages = ALL, LastHour(), LastHour()

    def overview(self) -> Overview:
        return self.all

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        found = next((group for group in ALL.groups if group.key == f"{namespace}/{name}"), None)
        return GroupDetails(found, [MemberSummary("pod")]) if found else None


def names(overview: Overview) -> str:
    """Return all names of an overview, in a line."""
    return " ".join(
        [
            *(queue.name for queue in overview.queues),
            *(group.key for group in overview.groups),
            *(f"{node.name}={'+'.join(node.groups)}<{node.reserved_for}" for node in overview.nodes),
            *(f"{each.group}@{'+'.join(each.nodes)}" for each in overview.reservations),
            *(f"!{decision.group}" for decision in overview.decisions),
            *(f"~{each.key}" for each in overview.local_queues),
        ]
    )


@each_of(
    (set(), "q a/one b/two n1=a/one+b/two<b/two a/one@n1 b/two@n1 !a/one !b/two ~a/way ~b/way"),
    (NOT_B, f"q a/one n1=a/one<{HIDDEN_GROUP} a/one@n1 !a/one ~a/way ~b/way"),
    (
        {("list", "queues", "")},
        "a/one b/two n1=a/one+b/two<b/two a/one@n1 b/two@n1 !a/one !b/two ~a/way ~b/way",
    ),
    ({("list", "nodes", "")}, "q a/one b/two a/one@ b/two@ !a/one !b/two ~a/way ~b/way"),
    (
        {("list", "localqueues", each) for each in ("", "b")} | NOT_B,
        f"q a/one n1=a/one<{HIDDEN_GROUP} a/one@n1 !a/one ~a/way",
    ),
    (NOTHING - {("list", "podgroups", "b")}, "b/two b/two@ !b/two"),
    (NOTHING, ""),
)
def test_only_objects_that_the_user_may_list_are_shown(refused: set[tuple[str, ...]], shown: str) -> None:
    assert names(VisibleOverviews(One()).visible_overview(SomeViewer(refused=refused)).overview) == shown


def test_viewers_with_equal_rights_share_one_overview() -> None:
    eyes = VisibleOverviews(One())
    ann, bob = (eyes.visible_overview(SomeViewer(name, refused=set(NOT_B))) for name in ("ann", "bob"))
    assert ann.overview is bob.overview
    assert ann.state("groups") == bob.state("groups") != eyes.visible_overview(SomeViewer()).state("groups")


@each_of(
    (set(), "a", "one", 1),
    (set(), "a", "other", None),
    (NOT_B, "b", "two", None),
    ({("list", "pods", "a")}, "a", "one", 0),
)
def test_details_need_the_rights_for_the_group_and_for_its_pods(
    refused: set[tuple[str, ...]], namespace: str, name: str, members: int | None
) -> None:
    details = VisibleOverviews(One()).details(namespace, name, SomeViewer(refused=refused))
    assert (None if details is None else len(details.members)) == members


def test_a_part_that_has_not_changed_keeps_its_state() -> None:
    source = One()
    eyes = VisibleOverviews(source)
    before = eyes.visible_overview(SomeViewer())
    source.all = replace(ALL, version="2", groups=ALL.groups[:1], nodes=[*ALL.nodes])
    after = eyes.visible_overview(SomeViewer())
    assert before.state("groups") != after.state("groups")
    assert before.state("nodes", "queues") == after.state("nodes", "queues")


def test_details_of_one_group_are_computed_once_for_all_viewers() -> None:
    class Counting(One):
        reviews = 0

        def details(self, namespace: str, name: str) -> GroupDetails | None:
            self.reviews += 1
            return super().details(namespace, name)

    source = Counting()
    eyes = VisibleOverviews(source)
    for name in ("ann", "bob", "cid"):
        assert eyes.details("a", "one", SomeViewer(name)) is not None
    assert source.reviews < 3
