"""The embedded scheduling loop asks Muster what the real kube-scheduler asks, in the same order.

Each scenario is played twice, on a real control plane and on the embedded one, with a proxy between the
scheduler and Muster that writes every call down. In which order the gates of a gang open is left to chance on
both sides, and so is how often a pod comes that waits for the same reason still. So calls are compared pod by
pod, the same call twice in a row counting once, and over all pods in the order of their gangs. A pod's last
condition has to say the same in the same words, because `muster why` and people read it.

Who is to start at once has a gate: a pod without one may be asked about before Muster has heard of it, and is
then sent back once more than on the other side.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.embedded import EmbeddedStage, embedded_stage
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.recorder import RecordedCall, Recorder
from tests.e2e.harness.resources import EVENTS, PODS
from tests.e2e.harness.scheduler import BOUND_BY_MUSTER, for_all_pods
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.nightly

Json = dict[str, Any]
DEFAULT_SCHEDULER = "default-scheduler"
REFUSED = "refused"


class Play(NamedTuple):
    """One of the two stages, and what its scheduler has said so far."""

    stage: Stage
    muster: Muster
    recorder: Recorder

    def nodes(self, count: int, cpu: str) -> None:
        """Create nodes one after the other: plans depend on the order in which nodes came."""
        for number in range(count):
            self.stage.nodes(1, prefix=f"node-{number}-", cpu=cpu)

    def wait_refused(self, *pods: str) -> None:
        """Wait until each of these pods has been sent back."""

        def refused() -> bool:
            return {*pods} <= {call.pod for call in self.recorder.calls() if REFUSED in call.answer}

        wait_for(refused, what=f"{pods} refused")

    def wait_reason(self, reason: str) -> None:
        """Wait until a group has this reason; that of a single pod has a different name on each stage."""

        def given() -> bool:
            return any(each.get("reason") == reason for each in self.muster.debug("/debug/podgroups"))

        wait_for(given, what=f"a group waits for {reason}")

    def condition(self, pod: str) -> str:
        conditions = self.stage.pod(pod)["status"].get("conditions", [])
        found: Json = next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})
        return f"{found.get('status')} {found.get('reason', '')} {found.get('message', '')}"

    def wait_condition(self, pod: str, message: str) -> None:
        wait_for(lambda: message in self.condition(pod), what=f"{pod} says {message}")


Scenario = Callable[[Play], None]


# ---- the scenarios


def a_gang_that_starts_at_once(play: Play) -> None:
    play.nodes(3, cpu="4")
    play.stage.wait_phase(play.stage.gang("a", 3, cpu="2", gated=True, **BOUND_BY_MUSTER))


def two_gangs_that_fit_alone_but_not_together(play: Play) -> None:
    play.nodes(3, cpu="2")
    first = play.stage.gang("a", 3, cpu="2", gated=True, **BOUND_BY_MUSTER)
    play.stage.wait_phase(first)
    second = play.stage.gang("b", 2, cpu="2", gated=True, **BOUND_BY_MUSTER)
    play.stage.wait_reason("b", "NoRoom")
    play.stage.finish(first)
    play.stage.wait_phase(second)


def a_group_of_one_refused_and_then_admitted(play: Play) -> None:
    play.nodes(1, cpu="4")
    play.stage.queue("q", capability={"cpu": "2"})
    filler = play.stage.pods("filler", 1, cpu="2", queue="q", gated=True, **BOUND_BY_MUSTER)
    play.stage.wait_phase(filler)
    (pod,) = play.stage.pods("p", 1, cpu="2", queue="q", **BOUND_BY_MUSTER)
    play.wait_refused(pod)
    play.wait_reason("QueueCeiling")
    play.stage.finish(filler)
    play.stage.wait_phase([pod])


def an_ungated_gang_that_has_to_wait(play: Play) -> None:
    play.nodes(1, cpu="4")
    filler = play.stage.pods("filler", 1, cpu="2", gated=True, **BOUND_BY_MUSTER)
    play.stage.wait_phase(filler)
    gang = play.stage.gang("a", 2, cpu="2", **BOUND_BY_MUSTER)
    play.wait_refused(*gang)
    play.stage.wait_reason("a", "NoRoom")
    play.stage.finish(filler)
    play.stage.wait_phase(gang)


def pods_that_fit_on_no_node(play: Play) -> None:
    """Skip the extender: one pod is too large, and none is less important than the other."""
    play.nodes(1, cpu="2")
    play.stage.wait_phase(play.stage.pods("stranger", 1, cpu="2", scheduler=DEFAULT_SCHEDULER))
    for name, cpu in (("large", "3"), ("late", "1")):
        (pod,) = play.stage.pods(name, 1, cpu=cpu, scheduler=DEFAULT_SCHEDULER)
        play.wait_condition(pod, "Insufficient cpu")


def an_urgent_pod_of_somebody_else(play: Play) -> None:
    """Clear the node of a single pod, not those of a gang; then the urgent pod comes with its nomination."""
    play.nodes(3, cpu="2")
    gang = play.stage.gang("a", 2, cpu="2", gated=True, **BOUND_BY_MUSTER)
    play.stage.wait_phase(gang)
    victim = play.stage.pods("victim", 1, cpu="2", scheduler=DEFAULT_SCHEDULER)
    play.stage.wait_phase(victim)
    urgent = play.stage.priority("urgent", 100_000)
    play.stage.wait_phase(
        play.stage.pods("urgent", 1, cpu="2", scheduler=DEFAULT_SCHEDULER, priorityClassName=urgent)
    )
    (last,) = play.stage.pods("last", 1, cpu="2", scheduler=DEFAULT_SCHEDULER, priorityClassName=urgent)
    play.wait_condition(last, "no candidate node for preemption")


def an_urgent_member_without_victims(play: Play) -> None:
    play.stage.queue("q", preemption={"unmanaged": "Never"})
    play.nodes(1, cpu="2")
    play.stage.wait_phase(play.stage.pods("standing", 1, cpu="2", scheduler=DEFAULT_SCHEDULER))
    urgent = play.stage.priority("urgent", 100_000)
    (pod,) = play.stage.pods("p", 1, cpu="2", queue="q", priorityClassName=urgent, **BOUND_BY_MUSTER)
    play.wait_condition(pod, "no candidate node for preemption")


# ---- both loops


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedStage]:
    with embedded_stage(tmp_path) as made:
        yield made


class Course(NamedTuple):
    """Course of a scenario: each pod's calls, the order of the gangs, messages of pods, and their events."""

    calls: dict[str, list[str]]
    gangs: list[str]
    conditions: dict[str, str]
    events: dict[str, set[str]]


def course(stage: Stage, user: User, scenario: Scenario) -> Course:
    muster = stage.start_muster(user=user)
    with Recorder(muster.address) as recorder:
        stage.start_scheduler(for_all_pods(DEFAULT_SCHEDULER), muster=recorder.address)
        play = Play(stage, muster, recorder)
        scenario(play)
        return _seen(play)


def _seen(play: Play) -> Course:
    names = sorted(pod["metadata"]["name"] for pod in play.stage.api.items(PODS, play.stage.namespace))
    of_pods: dict[str, list[str]] = defaultdict(list)
    for call in play.recorder.calls():
        of_pods[call.pod].append(_kind(call))
    return Course(
        calls={pod: _once(calls) for pod, calls in sorted(of_pods.items())},
        gangs=_once(pod.rpartition("-")[0] for pod in of_pods),
        conditions={name: play.condition(name) for name in names},
        events={name: _events(play, name) for name in names},
    )


def _kind(call: RecordedCall) -> str:
    """Return the kind of a call: all refusals are one kind, for any reason."""
    text = str(call)
    return text.partition(REFUSED)[0] + REFUSED if REFUSED in call.answer else text


def _once(calls: Iterable[str]) -> list[str]:
    """Return the calls, with the same one twice in a row counted once."""
    return [each for each, _ in groupby(calls)]


def _events(play: Play, pod: str) -> set[str]:
    """Return the scheduler's own events, as `kubectl describe` finds them."""

    def found() -> set[str]:
        return {
            f"{each['type']} {each['reason']} {each['action']}"
            for each in play.stage.api.items(EVENTS, play.stage.namespace)
            if each["involvedObject"]["name"] == pod and each["reason"] in ("Scheduled", "FailedScheduling")
        }

    wait_for(found, what=f"events of {pod}")
    return found()


@pytest.mark.parametrize(
    "scenario",
    [
        a_gang_that_starts_at_once,
        two_gangs_that_fit_alone_but_not_together,
        a_group_of_one_refused_and_then_admitted,
        an_ungated_gang_that_has_to_wait,
        pods_that_fit_on_no_node,
        an_urgent_pod_of_somebody_else,
        an_urgent_member_without_victims,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_both_scheduling_loops_send_the_same_calls(
    stage: Stage, embedded: EmbeddedStage, muster_user: User, scenario: Scenario
) -> None:
    real, ours = course(stage, muster_user, scenario), course(embedded, muster_user, scenario)
    assert ours.calls == real.calls
    assert ours == real
    assert any(real.calls.values())
