"""Conditions of waiting pods: one write per change of the reason, at a limited rate, none at their start."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api.objects.base import Condition
from extender.api.objects.queues import Provisioning
from extender.controllers.objects import ObjectStore, QueueCopy
from extender.controllers.pod_conditions import MIN_REASON_SECONDS, PodConditionsController
from extender.controllers.provisioning import ProvisioningQueues
from extender.domain.model.reasons import Reason, refusal
from extender.domain.snapshot.decisions import ConditionPolicy
from extender.kube.errors import Conflict, Forbidden, NotFound
from tests.controllers.api import Call
from tests.controllers.bench import RETRY_SECONDS, Bench
from tests.domain.builders import foreign_pod, node, pod, queue
from tests.domain.world import LIMITS, gang, key, names
from tests.property_examples import examples
from tests.rows import each_of

VIEW = ConditionPolicy(covers_ungated=True)
WRITTEN_AT = datetime(2026, 1, 1, tzinfo=UTC)
LACKS_CAPACITY = {"status": "False", "reason": "Unschedulable", "message": refusal(Reason.NO_ROOM)}
FIRST = {"lastTransitionTime": "2026-01-01T00:00:00Z"}


class Conditions(Bench):
    """Bench whose API server shows the written conditions on the pods, as the watch does."""

    def __init__(
        self, *objects: Any, policy: ConditionPolicy = VIEW, echoes: bool = True, through_proxy: bool = False
    ) -> None:
        # Without usage, time alone leads to one decision: a look misses none.
        super().__init__(*objects, through_proxy=through_proxy, limits=replace(LIMITS, usage_half_life=0.0))
        self.policy = policy
        self.echoes = echoes
        self.queues: ObjectStore[str, QueueCopy] = ObjectStore()
        self.asking = ProvisioningQueues(self.queues, lambda: True)
        self.restart()

    def restart(self) -> None:
        self.controller = PodConditionsController(self.means(), self.policy, self.asking, lambda: WRITTEN_AT)

    def look(self) -> list[Call]:
        """Return the writes of one look: the pod's name and its condition."""
        before = len(self.api.calls)
        self.controller.on_decisions(self.decisions)
        self.flush()
        calls = [call[1:] for call in self.api.calls[before:] if call[0] == "unscheduled"]
        if self.echoes:
            for name, condition, _ in calls:
                self.write(name, condition["reason"], condition["message"])
        return [call[:2] for call in calls]

    def after(self, seconds: float) -> list[Call]:
        self.advance(seconds).settle()
        return self.look()

    def reasons(self, seconds: float = MIN_REASON_SECONDS) -> dict[str, str]:
        """Return the reasons written by a look and a second look so many seconds later."""
        self.settle()
        self.look()
        return {name: condition["reason"] for name, condition in self.after(seconds)}

    def write(self, name: str, reason: str, message: str) -> None:
        before = self.pods[name]
        condition = Condition("PodScheduled", "False", reason, message)
        self.add(replace(before, status=replace(before.status, conditions=[condition])))


@contextmanager
def conditions(*objects: Any, **options: Any) -> Iterator[Conditions]:
    bench = Conditions(*objects, **options)
    with bench.writing(), capture_logs():
        yield bench


def full(*objects: Any) -> list[Any]:
    """Return one node, filled by a pod of another scheduler."""
    return [node("a", cpu="4"), foreign_pod("s", on="a", cpu="4"), *objects]


# ---- when


def test_a_reason_is_written_on_each_member_once_it_has_lasted() -> None:
    with conditions(full(gang("g", 2, gated=False))) as bench:
        assert bench.look() == []
        assert bench.after(MIN_REASON_SECONDS - 0.1) == []
        assert bench.after(0.1) == [
            ("g-0", {**LACKS_CAPACITY, **FIRST}),
            ("g-1", {**LACKS_CAPACITY, **FIRST}),
        ]
        assert bench.after(60.0) == []


def test_a_short_wait_costs_no_write() -> None:
    with conditions(full(gang("g", 2, gated=False))) as bench:
        bench.look()
        bench.advance(MIN_REASON_SECONDS - 1).delete("s")
        assert bench.after(0.0) == []
        assert bench.after(MIN_REASON_SECONDS) == []


def test_a_change_of_numbers_is_not_written() -> None:
    with conditions(full(gang("g", 2, gated=False))) as bench:
        assert len(bench.reasons()) == 2
        before = bench.detail("g")
        bench.delete("s").add(foreign_pod("t", on="a", cpu="3"))
        assert bench.reasons() == {}
        assert bench.detail("g") != before


def test_each_change_of_the_reason_is_written() -> None:
    waits = gang("g", 2, queue="q", gated=False)
    with conditions(full(queue("q"), waits)) as bench:
        assert bench.reasons() == {"g-0": "Unschedulable", "g-1": "Unschedulable"}
        bench.add(queue("q", capability={"cpu": "1"}))
        assert bench.reasons() == {"g-0": "NeverFits", "g-1": "NeverFits"}
        bench.add(queue("q"))
        assert bench.reasons() == {"g-0": "Unschedulable", "g-1": "Unschedulable"}


def test_where_nodes_are_asked_for_by_requests_no_pod_asks_for_them() -> None:
    """Request no node for the same pod twice, also after a request was made."""
    waits = gang("g", 2, queue="q", gated=False)
    with conditions(full(queue("q"), waits)) as bench:
        assert bench.reasons() == {"g-0": "Unschedulable", "g-1": "Unschedulable"}
        by_request = queue("q")
        by_request = replace(by_request, spec=replace(by_request.spec, provisioning=Provisioning("a-class")))
        bench.queues.put("q", QueueCopy(by_request, 0))
        assert bench.reasons() == {"g-0": "NoRoom", "g-1": "NoRoom"}
        bench.queues.put("q", QueueCopy(queue("q"), 0))
        assert bench.reasons() == {"g-0": "Unschedulable", "g-1": "Unschedulable"}


def test_a_later_member_gets_its_condition_later() -> None:
    with conditions(full(gang("g", 2, gated=False))) as bench:
        assert len(bench.reasons()) == 2
        bench.add(pod("g-2", "g", gated=False))
        assert bench.after(0.0) == []
        assert bench.after(MIN_REASON_SECONDS - 0.1) == []
        assert [name for name, _ in bench.after(0.1)] == ["g-2"]


def test_members_are_not_called_too_few_while_others_are_being_created() -> None:
    with conditions(node("a"), gang("g", 2, 6, gated=False)) as bench:
        bench.after(0.0)
        for number in range(2, 5):
            bench.advance(MIN_REASON_SECONDS - 1).add(pod(f"g-{number}", "g", gated=False))
            assert bench.after(0.0) == []
        assert {condition["reason"] for _, condition in bench.after(MIN_REASON_SECONDS)} == {
            "NotEnoughMembers"
        }


def test_a_pod_deleted_meanwhile_gets_no_condition() -> None:
    with conditions(full(pod("p", gated=False))) as bench:
        bench.look()
        assert bench.controller.waiting_count == 1
        bench.delete("p")
        assert bench.after(MIN_REASON_SECONDS) == []
        assert bench.controller.waiting_count == 0


# ---- pods with a condition


def test_the_transition_of_a_condition_that_was_false_before_keeps_its_time() -> None:
    with conditions(full(gang("g", 1, gated=False))) as bench:
        bench.write("g-0", "SchedulerError", "ouch")
        bench.after(0.0)
        assert bench.after(MIN_REASON_SECONDS) == [("g-0", LACKS_CAPACITY)]


def test_an_equal_condition_is_not_written_again() -> None:
    """A previous leader wrote it, or this process before a restart."""
    with conditions(full(gang("g", 2, gated=False))) as bench:
        bench.write("g-0", "Unschedulable", refusal(Reason.NO_ROOM))
        assert bench.reasons() == {"g-1": "Unschedulable"}


def test_an_overwritten_condition_stays_until_the_reason_changes() -> None:
    with conditions(full(gang("g", 2, gated=False))) as bench:
        assert len(bench.reasons()) == 2
        bench.refuse("g-0")
        assert bench.reasons() == {}
        assert bench.reasons(60.0) == {}
        bench.delete("s")
        bench.after(0.0)
        bench.add(foreign_pod("s", on="a", cpu="4"))
        assert bench.reasons() == {"g-0": "Unschedulable"}


def test_pods_with_a_planned_node_get_no_condition() -> None:
    with conditions(node("a"), gang("g", 2, gated=False)) as bench:
        assert bench.reasons() == {}


def test_pods_that_wait_for_the_max_in_flight_get_no_condition() -> None:
    """Pods that start as fast as they can must not cost a write each."""
    many = [each for number in range(4) for each in gang(f"g{number}", 400, gated=False)]
    with conditions(node("a", cpu="9999", pods="9999"), many) as bench:
        waiting = [name for name in ("g0", "g1", "g2", "g3") if bench.reason(name) is Reason.WINDOW_FULL]
        assert waiting
        assert bench.reasons() == {}


def test_a_pod_planned_while_its_write_waits_gets_no_condition() -> None:
    bench = Conditions(full(gang("g", 1, gated=False)))
    with capture_logs():
        bench.controller.on_decisions(bench.decisions)
        bench.advance(MIN_REASON_SECONDS)
        bench.controller.on_decisions(bench.decisions)
        assert bench.writers.pending_count == 1
        bench.delete("s").settle()
        assert bench.claim("g-0")
        with bench.writing():
            bench.flush()
            assert bench.api.calls == []
            bench.add(foreign_pod("s", on="a", cpu="4"))
            assert bench.reasons() == {"g-0": "Unschedulable"}


def elastic() -> list[Any]:
    """Return a running group with capacity for one of its further members, and two members that wait."""
    return [node("a", cpu="2"), gang("g", 4, 1, gated=False)]


def hold(bench: Bench, name: str) -> None:
    """Bind a pod by the scheduler whose binding is not posted yet: it is in no plan any more."""
    bench.answer(name)
    assert bench.hold(name, "a") is None
    bench.settle()
    assert bench.reason("g") is Reason.NO_ROOM
    assert bench.plan("g") == {}


def test_pods_of_a_running_group_that_are_starting_get_no_condition() -> None:
    with conditions(elastic()) as bench:
        bench.start("g")
        hold(bench, "g-1")
        assert bench.reasons().keys() == {"g-2", "g-3"}


def test_a_pod_that_is_starting_by_the_time_of_its_write_gets_no_condition() -> None:
    bench = Conditions(elastic())
    with capture_logs():
        bench.start("g").add(node("a", cpu="1")).settle()
        bench.controller.on_decisions(bench.decisions)
        bench.advance(MIN_REASON_SECONDS)
        bench.controller.on_decisions(bench.decisions)
        assert bench.writers.pending_count == 3
        bench.add(node("a", cpu="2")).settle()
        hold(bench, "g-1")
        with bench.writing():
            bench.flush()
    assert {name for name, *_ in bench.api.done("unscheduled")} == {"g-2", "g-3"}


def test_pods_that_the_scheduler_sees_get_no_condition() -> None:
    with conditions(full(gang("g", 2, gated=False)), through_proxy=True) as bench:
        assert bench.reasons() == {"g-0": "Unschedulable", "g-1": "Unschedulable"}
        bench.delete("s").settle()
        assert bench.shown().keys() == {"g-0", "g-1"}
        assert bench.reasons() == {}


def test_conditions_of_gated_pods_get_unschedulable_and_their_former_reason() -> None:
    waits = gang("g", 2, queue="q")
    with conditions(full(queue("q"), waits), policy=ConditionPolicy()) as bench:
        for name in names("g", 2):
            bench.write(name, "SchedulingGated", "blocked")
        assert bench.reasons() == {"g-0": "Unschedulable", "g-1": "Unschedulable"}
        bench.add(queue("q", capability={"cpu": "1"}))
        assert bench.reasons() == {"g-0": "SchedulingGated", "g-1": "SchedulingGated"}
        assert bench.reasons(60.0) == {}


@each_of((True, ConditionPolicy(shows_waiting_for_capacity=False)), (False, ConditionPolicy()))
def test_pods_whose_condition_is_not_musters_are_left_alone(gated: bool, policy: ConditionPolicy) -> None:
    with conditions(full(gang("g", 2, gated=gated)), policy=policy) as bench:
        assert bench.reasons() == {}


def test_a_nomination_is_removed_with_its_plan() -> None:
    with conditions(full(gang("g", 1, gated=False))) as bench:
        before = bench.pods["g-0"]
        bench.add(replace(before, status=replace(before.status, nominated_node_name="a")))
        bench.reasons()
        assert [call[-1] for call in bench.api.done("unscheduled")] == [True]


# ---- whatever happens

_MOVES: dict[str, Callable[[Conditions], object]] = {
    "capacity comes": lambda bench: bench.add(node("a", cpu="99")),
    "capacity goes": lambda bench: bench.add(node("a", cpu="4")),
    "too large for the cluster": lambda bench: bench.add(node("a", cpu="0")),
    "the queue is small": lambda bench: bench.add(queue("q", capability={"cpu": "1"})),
    "the queue is large": lambda bench: bench.add(queue("q")),
    "the scheduler refuses": lambda bench: bench.refuse("g-0"),
    "the gate goes": lambda bench: bench.ungate("g-1"),
    "another leads": lambda bench: setattr(bench, "leading", not bench.leading),
    "a write is refused": lambda bench: bench.api.fail("unscheduled", Forbidden(403)),
    "a write conflicts": lambda bench: bench.api.fail("unscheduled", Conflict(409)),
    "a restart": lambda bench: bench.restart(),
}


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(_MOVES)), st.sampled_from([0.0, 1.0, MIN_REASON_SECONDS])),
        max_size=12,
    )
)
def test_each_waiting_pod_finally_has_the_reason_of_its_group(history: list[tuple[str, float]]) -> None:
    with conditions(full(queue("q"), gang("g", 2, queue="q"), gang("h", 2, queue="q", gated=False))) as bench:
        for move, pause in history:
            _MOVES[move](bench)
            bench.after(pause)
        bench.leading = True
        bench.api.faults.clear()
        for _ in range(4):
            bench.after(RETRY_SECONDS)
        for group in ("g", "h"):
            for member in bench.ledger.groups.members(key(group)):
                wanted = VIEW.condition_of(bench.decision(group), member)
                planned = bench.ledger.claims.get(member.uid) is not None
                overwritten = bool(member.unschedulable)
                assert planned or overwritten or wanted in (None, member.unscheduled)
        assert bench.reasons(RETRY_SECONDS) == {}


# ---- how fast


def test_all_pods_share_a_budget_and_groups_are_written_one_after_the_other() -> None:
    burst, rate, step = PodConditionsController.burst, PodConditionsController.rate, 0.2
    large = [gang(name, 80, gated=False) for name in ("g", "h", "i")]
    with conditions(full(large)) as bench:
        bench.look()
        reasons = [name for name, _ in bench.after(MIN_REASON_SECONDS)]
        steps = 0
        while len(reasons) < 240:
            reasons += [name for name, _ in bench.after(step)]
            steps += 1
            assert len(reasons) <= burst + rate * step * steps
            assert steps < 100
        assert len(set(reasons)) == 240
        for first in (0, 80, 160):
            assert len({name.partition("-")[0] for name in reasons[first : first + 80]}) == 1
        assert bench.after(60.0) == []


def test_a_large_gang_is_read_once_for_many_writes() -> None:
    with conditions(full(gang("g", 300, gated=False))) as bench:
        bench.look()
        reasons = [len(bench.after(MIN_REASON_SECONDS))]
        while sum(reasons) < 300:
            reasons.append(len(bench.after(0.1)))
            assert len(reasons) < 100
        assert min(filter(None, reasons)) >= 25


# ---- writes that fail, and leadership


@each_of(Conflict(409), Forbidden(403))
def test_a_refused_write_is_retried(fault: Any) -> None:
    with conditions(full(gang("g", 1, gated=False)), echoes=False) as bench:
        bench.api.fail("unscheduled", fault)
        assert len(bench.reasons()) == 1
        assert len(bench.after(RETRY_SECONDS)) == 1
        assert bench.after(RETRY_SECONDS) == []


def test_a_pod_that_is_gone_is_left_alone() -> None:
    with conditions(full(gang("g", 1, gated=False)), echoes=False) as bench:
        bench.api.fail("unscheduled", NotFound(404))
        assert len(bench.reasons()) == 1
        bench.delete("g-0")
        assert bench.after(RETRY_SECONDS) == []
