"""Gates of planned pods: the node is nominated, then the gate is removed; parked pods are nudged."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Raw
from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api.objects.pods import Volume
from extender.controllers.scheduling_gates import SchedulingGatesController
from extender.kube.errors import Conflict
from tests.controllers.api import Call
from tests.controllers.bench import Bench
from tests.domain.builders import foreign_pod, node, pod
from tests.domain.world import gang, nodes


class Gates(Bench):
    def __init__(self, *objects: Any, through_proxy: bool = False) -> None:
        super().__init__(*objects, through_proxy=through_proxy)
        self.releaser = SchedulingGatesController(self.means())

    def look(self) -> list[Call]:
        """Return the writes of one look."""
        before = len(self.api.calls)
        self.releaser.on_decisions(self.decisions)
        self.flush()
        return self.api.calls[before:]


@contextmanager
def gates(*objects: Any, through_proxy: bool = False) -> Iterator[Gates]:
    bench = Gates(*objects, through_proxy=through_proxy)
    with bench.writing(), capture_logs():
        yield bench


def parked(*objects: Any) -> Any:
    """Return a gang that needs one member, which has no gate and which the scheduler has parked."""
    return [node("a", cpu="1"), gang("g", 1, gated=False), *objects]


def test_the_planned_node_is_nominated_before_the_gate_opens() -> None:
    with gates(nodes("a", "b", cpu="1"), gang("g", 2)) as bench:
        plan = bench.plan("g")
        assert bench.look() == [
            ("nominate", "g-0", plan["g-0"]),
            ("open", "g-0"),
            ("nominate", "g-1", plan["g-1"]),
            ("open", "g-1"),
        ]


def test_a_valid_nomination_is_not_written_again() -> None:
    with gates(node("a"), gang("g", 2)) as bench:
        for name in ("g-0", "g-1"):
            before = bench.pods[name]
            bench.add(replace(before, status=replace(before.status, nominated_node_name="a")))
        assert bench.look() == [("open", "g-0"), ("open", "g-1")]


def test_a_group_of_one_is_released_once_and_not_nominated() -> None:
    with gates(node("a"), pod("p")) as bench:
        assert bench.look() == [("open", "p")]
        assert bench.look() == []


def test_a_waiting_pod_keeps_its_gate() -> None:
    with gates(node("a"), gang("g", 5)) as bench:
        assert bench.look() == []


def test_an_ungated_pod_that_is_not_parked_or_that_the_scheduler_handles_gets_no_write() -> None:
    with gates(node("a"), gang("g", 2, gated=False)) as bench:
        assert bench.look() == []
        bench.refuse("g-0")
        bench.answer("g-0")
        assert bench.look() == []


# ---- nudges


def test_a_parked_pod_is_nudged_once_for_each_plan_with_another_token() -> None:
    with gates(nodes("a", "b", cpu="1"), pod("p", gated=False)) as bench:
        bench.refuse("p", "0/1 nodes are available: 1 muster: NoRoom: no.")
        claim = bench.claim("p")
        assert claim is not None
        ((*first, token),) = bench.look()
        assert bench.look() == []
        bench.add(foreign_pod("s", on=claim.node)).settle()
        moved = bench.claim("p")
        assert moved is not None
        assert moved.node != claim.node
        ((*second, other),) = bench.look()
        assert first == second == ["trigger_retry", "p"]
        assert token != other


def test_a_plan_for_the_same_node_made_again_is_nudged_for_again() -> None:
    with gates(node("a", cpu="1"), pod("p", gated=False)) as bench:
        bench.refuse("p", "0/1 nodes are available: 1 muster: NoRoom: no.")
        ((*_, token),) = bench.look()
        bench.add(foreign_pod("s", on="a")).settle()
        assert bench.look() == []
        bench.advance(1).delete("s").settle()
        ((verb, name, other),) = bench.look()
        assert (verb, name) == ("trigger_retry", "p")
        assert token != other


# ---- where the scheduler reads its pods through Muster


def test_a_gate_is_removed_without_a_nomination() -> None:
    with gates(node("a"), gang("g", 2), through_proxy=True) as bench:
        assert bench.look() == [("open", "g-0"), ("open", "g-1")]


def test_nothing_is_written_for_pods_without_a_gate() -> None:
    with gates(node("a"), gang("g", 2, gated=False), through_proxy=True) as bench:
        bench.refuse("g-0", "0/1 nodes are available: 1 muster: NoRoom: no.")
        assert bench.look() == []


def test_a_pod_whose_volumes_bind_late_is_nominated_in_the_api_before_it_is_shown() -> None:
    late = pod("p", gated=False)
    claimed = Volume(persistent_volume_claim=Raw(b'{"claimName": "data"}'))
    late = replace(late, spec=replace(late.spec, volumes=[claimed]))
    with gates(node("a"), late, through_proxy=True) as bench:
        assert bench.shown() == {}
        assert bench.look() == [("nominate", "p", "a")]
        bench.add(replace(late, status=replace(late.status, nominated_node_name="a"))).settle()
        assert list(bench.shown()) == ["p"]
        assert bench.look() == []


# ---- writes that fail


def test_the_gate_stays_shut_when_the_nomination_fails() -> None:
    with gates(node("a"), gang("g", 2)) as bench:
        bench.api.fail("nominate", Conflict(409))
        assert bench.look() == [("nominate", "g-0", "a"), ("nominate", "g-1", "a"), ("open", "g-1")]
        bench.advance(0.5)
        assert bench.look() == [("nominate", "g-0", "a"), ("open", "g-0")]


# ---- leadership
