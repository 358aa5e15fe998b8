"""Pods that are not ours: a change costs what it concerns, and leaves what was shown before as it is."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shapes
from extender.domain.model.wire_records import foreign_record
from extender.domain.snapshot.snapshot import OtherPods
from tests.domain.builders import foreign_pod, node
from tests.domain.world import World

UIDS = tuple(Uid(f"u{n}") for n in range(6))
states = st.dictionaries(st.sampled_from(UIDS), st.none() | st.booleans(), max_size=4)


def record(uid: Uid, deleting: bool | None) -> PodRecord | None:
    record = replace(foreign_record(foreign_pod("p", on="n"), Shapes()), uid=uid)
    return None if deleting is None else replace(record, deleting=deleting)


@given(st.lists(states, max_size=6))
def test_the_map_of_other_pods_equals_the_applied_changes(changes: list[dict[Uid, bool | None]]) -> None:
    pods, known = OtherPods(), dict[Uid, PodRecord]()
    for change in changes:
        before, then = pods, dict(known)
        records = {uid: record(uid, deleting) for uid, deleting in change.items()}
        pods = pods.with_changes(records)
        known = {uid: pod for uid, pod in {**known, **records}.items() if pod is not None}
        for each, expected in ((pods, known), (before, then)):
            assert {pod.uid: pod for pod in each} == expected
            assert [each.get(uid) for uid in UIDS] == [expected.get(uid) for uid in UIDS]
            assert (len(each), [uid in each for uid in UIDS]) == (
                len(expected),
                [uid in expected for uid in UIDS],
            )
            assert each.leaving == {uid: pod for uid, pod in expected.items() if pod.deleting}


def test_a_change_of_one_pod_among_thousands_costs_a_snapshot_little() -> None:
    """Share all parts of the list of pods between the snapshots except the one with the pod that moved."""
    world = World(node("n0"), [foreign_pod(f"s{n}", on="n0") for n in range(5000)])
    first = world.ledger.snapshot().other_pods
    assert world.ledger.snapshot().other_pods is first
    second = world.add(foreign_pod("more", on="n0")).ledger.snapshot().other_pods
    assert _shared(first, second) >= len(first._parts) - 1
    third = world.delete("s0", "more").ledger.snapshot().other_pods
    assert (len(first), len(second), len(third)) == (5000, 5001, 4999)
    assert _shared(second, third) >= len(first._parts) - 2


def _shared(one: OtherPods, other: OtherPods) -> int:
    same: Counter[Any] = Counter(map(id, one._parts)) & Counter(map(id, other._parts))
    return same.total()
