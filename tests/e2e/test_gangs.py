"""Gangs on a real kube-scheduler: whole or not at all."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volumes import Provisioner
from tests.e2e.harness.waiting import GENEROUS_SECONDS, wait_for

BOTH_WAYS = pytest.mark.parametrize("gated", [True, False], ids=["gated", "ungated"])


def test_a_gang_of_three_starts_whole(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    stage.nodes(3, cpu="4")
    gang = stage.gang("a", 3, cpu="2", gated=True)
    stage.wait_bound(gang)
    stage.wait_phase(gang, "Running")


@BOTH_WAYS
def test_a_gang_that_does_not_fit_waits_and_starts_when_capacity_is_free(
    stage: Stage, scheduler: KubeScheduler, gated: bool
) -> None:
    stage.nodes(2, cpu="4")
    filler = stage.pods("filler", 1, cpu="3")
    stage.wait_phase(filler)
    gang = stage.gang("a", 3, cpu="2", gated=gated)
    stage.wait_reason("a", "NoRoom")
    assert stage.bound(gang) == {}
    _show("capacity to gang bound", _seconds(lambda: stage.finish(filler), lambda: stage.wait_bound(gang)))


def test_two_gangs_that_fit_only_alone_start_one_after_the_other(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="4")
    gangs = {name: stage.gang(name, 3, cpu="2", gated=True) for name in ("a", "b")}
    second = stage.first_with_reason(gangs, "NoRoom")
    first = ({*gangs} - {second}).pop()
    stage.wait_phase(gangs[first])
    assert stage.bound(gangs[second]) == {}
    stage.finish(gangs[first])
    stage.wait_phase(gangs[second])


def test_a_gang_of_500_starts_whole(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(20, cpu="32")
    gang = stage.gang("large", 500, gated=True)
    _show("500 pods created to bound", _seconds(lambda: None, lambda: stage.wait_bound(gang)))


def test_thirty_of_fifty_gangs_fit_and_the_others_follow(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(30, cpu="10")
    gangs = {f"g{number}": stage.gang(f"g{number}", 10, gated=True) for number in range(50)}
    wait_for(lambda: Counter(map(stage.reason, gangs)) == {"Running": 30, "NoRoom": 20}, what="30 of 50 run")
    bound = {name: len(stage.bound(pods)) for name, pods in gangs.items()}
    assert Counter(bound.values()) == {10: 30, 0: 20}
    stage.wait_phase(_all_of(gangs[name] for name, count in bound.items() if count))

    def end_the_first() -> None:
        stage.finish(_all_of(gangs[name] for name, count in bound.items() if count))

    rest = _all_of(gangs[name] for name, count in bound.items() if not count)
    _show("20 gangs of 10 follow", _seconds(end_the_first, lambda: stage.wait_bound(rest)))


def test_no_more_members_start_at_once_than_the_window_holds(stage: Stage, muster_user: User) -> None:
    """The scheduler is frozen, so that the pods in the window stay there during the check."""
    muster = stage.start_muster("--window", "50", user=muster_user)
    scheduler = stage.start_sidecar(muster, user=muster_user)
    stage.nodes(4, cpu="64")
    scheduler.process.freeze()
    gangs = {f"g{number}": stage.gang(f"g{number}", 20, gated=True) for number in range(5)}
    expected = {"Starting": 2, "WindowFull": 3}
    wait_for(lambda: Counter(map(stage.reason, gangs)) == expected, what="the window is full")
    assert _ungated(stage) <= 40
    scheduler.process.thaw()
    stage.wait_phase(_all_of(gangs.values()))

    too_large = stage.gang("too-large", 51, gated=True)
    stage.wait_reason("too-large", "TooLargeForWindow")
    assert stage.bound(too_large) == {}
    stage.wait_phase(stage.gang("just-right", 50, gated=True))


@pytest.mark.muster_flags("--window", "50")
def test_a_gang_that_fits_nowhere_takes_no_places_of_the_window(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """It would fill the window, in which one pod waits for a volume that never comes."""
    stage.nodes(2, cpu="16")
    stage.queue("giants")
    stage.pods("slow", 1, gated=True, **Provisioner(stage).late("never"))
    stage.gang("giant", 50, queue="giants", cpu="1000", gated=True)
    stage.wait_reason("giant", "NeverFits")
    stage.wait_phase(_all_of(stage.gang(f"g{number}", 2, gated=True) for number in range(6)))


def test_a_gang_needs_the_minimum_of_each_role(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(2, cpu="4")
    stage.group("a", 4, minTaskMember={"driver": 1, "worker": 2})
    workers = stage.pods("worker", 5, group="a", task="worker", gated=True)
    stage.wait_reason("a", "NotEnoughMembers")
    assert stage.bound(workers) == {}
    drivers = stage.pods("driver", 1, group="a", task="driver", gated=True)
    stage.wait_phase([*workers, *drivers])


@BOTH_WAYS
def test_members_beyond_the_minimum_start_one_by_one(
    stage: Stage, scheduler: KubeScheduler, gated: bool
) -> None:
    stage.nodes(1, cpu="4")
    gang = stage.gang("a", 6, min_member=3, gated=gated)
    wait_for(
        lambda: len(stage.bound(gang)) == 4 and stage.reason("a") == "NoRoom", what="capacity for 4 is used"
    )
    stage.nodes(1, prefix="more", cpu="1")
    wait_for(lambda: len(stage.bound(gang)) == 5, what="one more starts")
    done = sorted(stage.bound(gang))[:1]
    stage.wait_phase(done)
    stage.finish(done)
    stage.wait_bound(gang)


@BOTH_WAYS
def test_a_lost_member_is_replaced_and_the_rest_stays(
    stage: Stage, scheduler: KubeScheduler, gated: bool
) -> None:
    stage.nodes(3, cpu="2")
    gang = stage.gang("a", 3, cpu="2", gated=gated)
    stage.wait_phase(gang)
    before = _uids(stage, gang)
    stage.delete_pods(gang[:1])
    wait_for(lambda: stage.phases(gang[:1]) == {"Gone"}, what="the lost member is gone")
    stage.pods("a", 1, cpu="2", group="a", gated=gated)
    stage.wait_phase(gang)
    after = _uids(stage, gang)
    assert {name for name in gang if before[name] != after[name]} == {gang[0]}


def test_a_lost_member_waits_for_capacity_without_the_rest(stage: Stage, scheduler: KubeScheduler) -> None:
    """Somebody else was faster: the gang stands on, and the replacement starts when that one is done."""
    stage.nodes(3, cpu="2")
    gang = stage.gang("a", 3, cpu="2", gated=True)
    lost, others = gang[:1], gang[1:]
    stage.wait_phase(gang)
    before = _uids(stage, others)
    stage.delete_pods(lost)
    wait_for(lambda: stage.phases(lost) == {"Gone"}, what="the lost member is gone")
    intruder = stage.pods("intruder", 1, cpu="2")
    stage.wait_phase(intruder)
    stage.pods("a", 1, cpu="2", group="a", gated=True)
    stage.wait_reason("a", "NoRoom")
    assert stage.phases(others) == {"Running"}
    stage.finish(intruder)
    stage.wait_phase(gang)
    assert _uids(stage, others) == before


@pytest.mark.view
def test_capacity_for_min_resources_is_reserved_for_later_members(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """Keep it for Spark's operator: a driver makes its executors once it runs (spark-operator#883)."""
    stage.nodes(1, cpu="4")
    apps = [f"app{n}" for n in range(4)]
    for app in apps:
        stage.group(app, 1, minResources={"cpu": "2"})
        stage.pods(f"{app}-driver", 1, group=app, cpu="1")
    for first in (0, 2):
        drivers = [f"{app}-driver-0" for app in apps[first : first + 2]]
        stage.wait_phase(drivers)
        for app in apps[first + 2 :]:
            stage.wait_reason(app, "NoRoom")
        executors = [
            name for app in apps[first : first + 2] for name in stage.pods(f"{app}-e", 1, group=app, cpu="1")
        ]
        stage.wait_phase(executors)
        stage.finish([*drivers, *executors])


def _all_of(gangs: Iterable[list[str]]) -> list[str]:
    return [pod for gang in gangs for pod in gang]


def _uids(stage: Stage, names: Iterable[str]) -> dict[str, str]:
    return {name: stage.pod(name)["metadata"]["uid"] for name in names}


def _ungated(stage: Stage) -> int:
    return sum(not pod["spec"].get("schedulingGates") for pod in stage.api.items(PODS, stage.namespace))


def _seconds(begin: Callable[[], object], end: Callable[[], object]) -> float:
    started = time.monotonic()
    begin()
    end()
    return time.monotonic() - started


def _show(what: str, seconds: float) -> None:
    """Print a figure for the log; the test asserts only that it ended."""
    print(f"\n{what}: {seconds:.2f} s")  # noqa: T201
    assert seconds < GENEROUS_SECONDS
