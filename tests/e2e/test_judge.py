"""The judge alone, on artificial histories with a simulated clock."""

from collections import Counter

import pytest

from tests.e2e.harness.amounts import quantity, requests
from tests.e2e.harness.judge import GangSeen, NodeSeen, PodSeen, Review, Seen

DEADLINE = 10.0


def member(
    version: int, at: float, name: str, *, holds_capacity: bool = True, cpu: int = 1, node: str = "n0"
) -> PodSeen:
    requests = Counter({"cpu": cpu})
    return PodSeen(version, at, f"x/{name}", name, node, "x/g", holds_capacity, requests)


def reviewed(*history: Seen, until: float = 0.0) -> list[str]:
    return Review(DEADLINE).replay(history, until)


def late(seconds: float, size: int = 2) -> list[str]:
    return [f"gang x/g stood between 0 and {size} for {seconds} s of 10 s"]


def test_a_gang_may_stand_in_pieces_until_its_deadline() -> None:
    history = [GangSeen(1, 0, "x/g", 2), member(2, 5, "a")]
    assert reviewed(*history, until=15) == []
    assert reviewed(*history, until=15.1) == late(10.1)


def test_pieces_are_counted_from_the_first_binding_on() -> None:
    history = [GangSeen(1, 0, "x/g", 3), member(2, 5, "a"), member(3, 14, "b"), member(4, 16, "c")]
    assert reviewed(*history) == late(11.0, 3)


def test_the_deadline_of_an_undone_gang_begins_again() -> None:
    undone = [GangSeen(1, 0, "x/g", 2), member(2, 5, "a"), member(3, 14, "a", holds_capacity=False)]
    assert reviewed(*undone, member(4, 20, "b"), until=29) == []


def test_a_gang_that_ran_fully_may_lose_members() -> None:
    whole = [GangSeen(1, 0, "x/g", 2), member(2, 1, "a"), member(3, 2, "b")]
    assert reviewed(*whole, member(4, 3, "b", holds_capacity=False), until=1000) == []


def test_a_gang_that_is_recreated_under_its_old_name_is_reviewed_again() -> None:
    old = [
        GangSeen(1, 0, "x/g", 1),
        member(2, 1, "a"),
        GangSeen(3, 2, "x/g", None),
        member(4, 3, "a", holds_capacity=False),
    ]
    new = [GangSeen(5, 4, "x/g", 2), member(6, 5, "b")]
    assert reviewed(*old, *new, until=16) == late(11.0)


def test_the_order_of_versions_counts_not_that_of_arrival() -> None:
    """Two watches race: the binding arrives before the deletion that freed its capacity."""
    capacity = NodeSeen(1, 0, "n0", Counter({"cpu": 1}))
    gone, came = member(3, 2.0, "a", holds_capacity=False), member(4, 1.0, "b")
    assert reviewed(capacity, member(2, 0, "a"), came, gone) == []


def test_the_need_of_a_gang_outlives_its_record() -> None:
    gone = [GangSeen(1, 0, "x/g", 2), member(2, 5, "a"), GangSeen(3, 6, "x/g", None)]
    assert reviewed(*gone, until=16) == late(11.0)
    assert reviewed(*gone, member(4, 8, "a", holds_capacity=False), member(5, 9, "b"), until=100) == []


@pytest.mark.parametrize(("restart", "is_reviewed"), [(5.5, True), (8, False), (20, True)])
def test_the_need_of_a_gang_is_unknown_if_muster_restarts_after_its_record_was_deleted(
    restart: float, is_reviewed: bool
) -> None:
    """Review the gang only if the process had time to undo it; earlier pieces are held against it."""
    history = [GangSeen(1, 0, "x/g", 2), member(2, 5, "a"), GangSeen(3, 6, "x/g", None)]
    review = Review(DEADLINE, restarts=[restart])
    assert bool(review.replay(history, 30)) is is_reviewed
    assert bool(review.incomplete_gangs()) is is_reviewed


def test_the_review_names_gangs_that_stand_in_pieces() -> None:
    review = Review(DEADLINE)
    review.replay([GangSeen(1, 0, "x/g", 2), member(2, 5, "a"), GangSeen(3, 6, "x/g", None)], 7)
    assert review.incomplete_gangs() == ["gang x/g stands with 1 of 2, and its PodGroup is gone"]
    review.replay([member(4, 7, "b")], 8)
    assert review.incomplete_gangs() == []


def test_a_member_that_has_done_its_work_stands() -> None:
    done = PodSeen(3, 6, "x/a", "a", "n0", "x/g", holds_capacity=False, requests=Counter(), succeeded=True)
    history = [GangSeen(1, 0, "x/g", 2), member(2, 5, "a"), done, member(4, 7, "b")]
    assert reviewed(*history, until=100) == []


def test_a_deadline_counts_calm_seconds_only() -> None:
    history = [GangSeen(1, 0, "x/g", 2), member(2, 5, "a")]
    frozen = Review(DEADLINE, undisturbed_time=lambda at: min(at, 8) + max(at - 20, 0))
    assert frozen.replay(history, 26) == []
    frozen = Review(DEADLINE, undisturbed_time=lambda at: min(at, 8) + max(at - 20, 0))
    assert frozen.replay(history, 28) == late(11.0)
    assert frozen.violations[0].at == 28


def test_a_violation_is_of_resources_that_the_new_pod_requests() -> None:
    small = NodeSeen(3, 2, "n0", Counter({"cpu": 2, "gpu": 0}))
    capacity = NodeSeen(1, 0, "n0", Counter({"cpu": 2, "gpu": 1}))
    gpu = PodSeen(
        2, 1, "x/gpu", "gpu", "n0", None, holds_capacity=True, requests=Counter({"cpu": 1, "gpu": 1})
    )
    assert reviewed(capacity, gpu, small, member(4, 3, "a")) == []
    assert reviewed(capacity, gpu, small, member(4, 3, "a", cpu=2)) != []


def test_a_violation_that_no_watch_had_shown_counts_against_no_scheduler() -> None:
    capacity, shrunk = (NodeSeen(1, 0, "n0", Counter({"cpu": 2})), NodeSeen(3, 5, "n0", Counter({"cpu": 1})))
    before = [capacity, member(2, 1, "a"), shrunk]
    foreign = PodSeen(
        3, 5, "x/f", "f", "n0", None, holds_capacity=True, requests=Counter({"cpu": 1}), foreign=True
    )
    for late, wrong in ((8, False), (12, True)):
        for seen in (before, [capacity, member(2, 1, "a"), foreign]):
            found = Review(DEADLINE, sight=5).replay([*seen, member(4, late, "b")], 0)
            assert bool(found) is wrong
        assert Review(DEADLINE).replay([*before, member(4, late, "b")], 0) != []


def test_marks_and_growing_nodes_are_no_overcommitment() -> None:
    small, large = (NodeSeen(version, 0, "n0", Counter({"cpu": cpu})) for version, cpu in ((1, 1), (3, 2)))
    assert reviewed(small, member(2, 0, "a"), large, member(4, 0, "b")) == []
    pod = {"spec": {"containers": [{"resources": {"requests": {"kube-muster.io/place": "1", "cpu": "1"}}}]}}
    assert requests(pod) == {"cpu": 1000, "pods": 1000}


def test_requests_are_counted_as_the_scheduler_counts_them() -> None:
    def container(cpu: str, **more: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1"), container("500m")],
        "initContainers": [container("1", restartPolicy="Always"), container("3")],
        "overhead": {"cpu": "250m"},
    }
    assert requests({"spec": spec})["cpu"] == 4250
    assert requests({"spec": {**spec, "resources": {"requests": {"cpu": "2"}}}})["cpu"] == 2250


def test_quantities() -> None:
    written = ("1", "100m", "1Ki", "1.5", "2k", "1e3", "1n", 2)
    assert [quantity(text) for text in written] == [1000, 100, 1024000, 1500, 2000000, 1000000, 1, 2000]
