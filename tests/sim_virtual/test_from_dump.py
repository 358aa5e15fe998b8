"""A dump continues in virtual time: at second 0 its state and its decisions are the same."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.queues import (
    QueueLimits,
    RunningLimit,
)
from extender.cli import main
from extender.domain.explain import future
from extender.domain.explain.dump import dump
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, verdict_of
from extender.domain.snapshot.snapshot import Snapshot
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.workload import DumpedState, VirtualWorkload
from extender.web.debug import version
from tests.domain.builders import foreign_pod, group, node, pod, queue
from tests.domain.inadmissible_world import crowd, divided_cluster, full_cluster
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.world import World, gang, key, timestamp


class Watched(Observer):
    """Observer of the decisions at each step."""

    def __init__(self) -> None:
        self.decisions: dict[float, Decisions] = {}

    def decided(self, decisions: Decisions, now: float) -> None:
        self.decisions.setdefault(now, decisions)


def gone_on(snapshot: Snapshot, run_seconds: float | None = None) -> dict[float, Decisions]:
    watched = Watched()
    given = VirtualWorkload(state=(DumpedState(snapshot, run_seconds),))
    Simulation(given, snapshot.limits, frozenset({"muster"}), watched).run()
    return watched.decisions


@pytest.mark.parametrize("world", [crowd, full_cluster, divided_cluster])
def test_at_first_the_same_is_decided(world: Callable[[], World]) -> None:
    snapshot = world().ledger.snapshot()
    before, now = decide(snapshot), gone_on(snapshot)[0.0]
    assert {name: verdict_of(decision) for name, decision in now.groups.items()} == {
        name: verdict_of(decision) for name, decision in before.groups.items()
    }
    shares = {name: (queue.deserved, queue.allocated, queue.share) for name, queue in before.queues.items()}
    assert {
        name: (queue.deserved, queue.allocated, queue.share) for name, queue in now.queues.items()
    } == shares


def test_what_runs_ends_after_the_rest_of_its_time_and_others_follow() -> None:
    world = World(node("a", cpu="2"), queue("q"))
    world.add(gang("early", 2, queue="q", run_time="300s")).settle().start("early")
    for name in ("early-0", "early-1"):
        before = world.pods[name]
        status = replace(before.status, phase="Running", start_time=timestamp(world.now - 100.0))
        world.add(replace(before, status=status))
    world.add(gang("later", 2, queue="q", run_time="50s", created=timestamp(1000))).settle()
    decisions = gone_on(world.ledger.snapshot())
    later = {
        at: str(decision.groups[key("later")].verdict)
        for at, decision in decisions.items()
        if key("later") in decision.groups
    }
    assert later[0.0] == "Waiting"
    assert min(at for at, verdict in later.items() if verdict != "Waiting") == 200.0
    assert max(later) == 250.0


def test_what_keeps_a_group_from_starting_still_does() -> None:
    """Keep a group waiting that its owner holds, or whose namespace its queue does not accept."""
    world = World(node("a"), queue("q"))
    world.add(group("held", 1, queue="q", annotations={keys.HOLD: "true"}), pod("held-0", "held"))
    world.add(gang("free", 1, queue="q")).settle()
    verdicts = {
        name: str(decision.verdict) for name, decision in gone_on(world.ledger.snapshot())[0.0].groups.items()
    }
    assert verdicts == {key("held"): "Waiting", key("free"): "Running"}


def test_users_keep_their_limits() -> None:
    world = World(node("a", cpu="9"), queue("q", limits=QueueLimits(per_user=RunningLimit(groups=1))))
    for name, user in (("a", "ann"), ("b", "ann"), ("c", "bob")):
        world.add(gang(name, 1, queue="q", notes={keys.SUBMITTER: user}))
    verdicts = {
        name: str(decision.verdict)
        for name, decision in gone_on(world.settle().ledger.snapshot())[0.0].groups.items()
    }
    assert verdicts == {key("a"): "Running", key("b"): "Waiting", key("c"): "Running"}


def test_the_command_continues_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    written = dump(full_cluster().add(foreign_pod("more", on="n0")).settle().ledger.decisions, version(), {})
    assert written is not None
    file.write_bytes(written)
    reported = CliRunner().invoke(
        main, ["simulate", "--from-dump", str(file), "--run-seconds", "60", "-o", "json"]
    )
    assert reported.exit_code in (0, 3), reported.output
    assert '"nodes": 3' in reported.output
    trace = tmp_path / "more.csv"
    trace.write_text("arrival,group,queue,seconds,cpu\n5,more,q,30,1\n")
    reported = CliRunner().invoke(main, ["simulate", "--from-dump", str(file), "--trace", str(trace)])
    assert "queue   weight   groups   started   done" in reported.output
    assert "\nq            1        3         2      1 " in reported.output
    file.write_bytes(written[:-1])
    refused = CliRunner().invoke(main, ["simulate", "--from-dump", str(file)])
    assert refused.exit_code == 2
    assert f"{file}: " in refused.output


def test_a_dump_that_contradicts_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(dump(full_cluster().ledger.decisions, version(), {}) or b"")
    monkeypatch.setattr(future, "restore", lambda *_: 1 / 0)
    refused = CliRunner().invoke(main, ["simulate", "--from-dump", str(file)])
    assert refused.exit_code == 2
    assert "the dump cannot go on: ZeroDivisionError: " in refused.output


def test_a_group_whose_start_failed_backs_off_as_before() -> None:
    world = World(node("a"), queue("q")).add(gang("g", 1, queue="q"))
    world.ledger.give_up_start(key("g"), "its pods did not come")
    decisions = gone_on(world.ledger.snapshot())
    reasons = {at: decision.groups[key("g")].reason for at, decision in decisions.items()}
    assert reasons == {0.0: Reason.BACKING_OFF, world.ledger.limits.backoff: None}


def test_a_suspended_job_makes_its_pods_when_it_starts() -> None:
    world = JobWorld(node("a", cpu="2"), queue("q")).submit(
        job("first", 2, queue="q"), job("next", 2, queue="q")
    )
    decisions = gone_on(world.settle().ledger.snapshot(), run_seconds=60.0)
    running = [
        (at, unit)
        for at, decision in decisions.items()
        for unit, group in decision.groups.items()
        if group.verdict is Verdict.RUNNING
    ]
    starts = {
        name: min(at for at, unit in running if unit.endswith(podgroup_name(name)))
        for name in ("first", "next")
    }
    assert starts == {"first": 0.0, "next": 60.0}
