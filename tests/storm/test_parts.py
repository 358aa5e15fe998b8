"""The plan, the agenda, the clock that stands still, and the liveness: all without a cluster."""

import subprocess
import sys
import time
from pathlib import Path

from tests.storm.agenda import Agenda
from tests.storm.clock import Clock
from tests.storm.faults import FAULTS, Standstill
from tests.storm.gang_specs import FATES
from tests.storm.liveness import LivenessCheck
from tests.storm.plan import (
    MILD_KINDS,
    MINUTE,
    OUTAGES,
    REPLICAS_KINDS,
    ROUGH_KINDS,
    ROUGH_SECONDS,
    ROUGH_VIEW_KINDS,
    VIEW_KINDS,
    Mix,
    plan,
)
from tests.storm.undisturbed_time import UndisturbedTime


def test_a_plan_follows_from_its_seed() -> None:
    assert plan(7, 120, Mix()) == plan(7, 120, Mix())
    assert plan(7, 120, Mix()) != plan(8, 120, Mix())


def test_every_kind_of_fault_is_planned_and_can_be_done() -> None:
    with_view = VIEW_KINDS.keys() | ROUGH_VIEW_KINDS.keys()
    with_two = REPLICAS_KINDS.keys()
    assert FAULTS.keys() == MILD_KINDS.keys() | ROUGH_KINDS.keys() | with_view | with_two
    assert {step.kind for step in plan(1, 3600, Mix())} == {"arrive", *MILD_KINDS, *ROUGH_KINDS}
    assert {step.kind for step in plan(1, 3600, Mix(view=True))} == {"arrive", *FAULTS} - with_two
    assert with_two < {step.kind for step in plan(1, 3600, Mix(replicas=True))}
    assert FATES.keys() <= {"", *FAULTS}


def test_with_the_view_few_pods_have_gates_and_it_is_cut_every_few_seconds() -> None:
    steps = plan(7, 600, Mix(view=True))
    gang_specs = [step.gang_spec for step in steps if step.gang_spec]
    assert 0 < sum(gang_spec.gated for gang_spec in gang_specs) < len(gang_specs) / 2
    assert {gang_spec.hangs_at for gang_spec in gang_specs if not gang_spec.gated} == {"", "binding"}
    assert sum(step.kind == "cut-view" for step in steps) > 600 / 6


def test_a_mix_with_fates_has_most_gangs_struck_when_half_of_them_is_bound() -> None:
    steps = plan(7, 600, Mix(replicas=True, fates={"lose-leader": 1}))
    gangs = [step.gang_spec for step in steps if step.gang_spec and step.gang_spec.kind == "gang"]
    halved = [gang_spec for gang_spec in gangs if gang_spec.hangs_at == "half"]
    assert {(gang_spec.fate, gang_spec.min_member > 1) for gang_spec in halved} == {("lose-leader", True)}
    assert len(halved) > len(gangs) / 3
    bound = Standstill("g1", "half", 1.0).fault
    binds = [bound.matches("POST", f"/api/v1/namespaces/x/pods/g1-{n}/binding") for n in range(11)]
    assert binds == [n % 2 == 0 for n in range(11)]


def test_nothing_dies_in_the_calm_part_of_a_minute() -> None:
    late = {step.kind for step in plan(3, 3600, Mix()) if step.at % MINUTE >= ROUGH_SECONDS}
    assert not late & OUTAGES


def test_generated_objects_are_valid() -> None:
    for gang_spec in (step.gang_spec for step in plan(5, 1800, Mix()) if step.gang_spec):
        assert 1 <= gang_spec.min_member <= gang_spec.size <= 40
        pods = [gang_spec.pod(number, "x")["metadata"]["annotations"] for number in range(gang_spec.size)]
        for role, least in gang_spec.roles.items():
            assert sum(pod.get("volcano.sh/task-spec") == role for pod in pods) >= least
        assert sum("storm/refused" in pod for pod in pods) == gang_spec.refused


def test_the_calm_clock_stands_still_during_outages() -> None:
    undisturbed_time = UndisturbedTime(grace=2)
    undisturbed_time.begin("muster", at=10)
    undisturbed_time.begin("apiserver", at=12)
    undisturbed_time.end("muster", at=14)
    assert undisturbed_time(20) == 10, "the API server is still away"
    undisturbed_time.end("apiserver", at=15)
    assert [undisturbed_time(at) for at in (5, 10, 13, 17, 20)] == [5, 10, 10, 10, 13]
    undisturbed_time.begin("muster", at=30)
    undisturbed_time.end("muster", at=31)
    assert undisturbed_time(40) == 40 - 7 - 3
    assert undisturbed_time(13) == 10


def test_an_agenda_does_what_is_due_until_it_is_done() -> None:
    reports, tries = list[str](), list[str]()

    def mend() -> bool:
        tries.append("mend")
        if len(tries) == 1:
            raise OSError
        return len(tries) > 2

    agenda = Agenda((OSError,), reports.append)
    agenda.add_repair(1000, "the wire", mend)
    agenda.add_fault(1000, lambda: tries.append("never"))
    agenda.run(time.monotonic())
    assert (tries, len(agenda)) == ([], 2)
    agenda.repair_now()
    for seconds in (1, 2, 3):
        assert reports == []
        agenda.run(time.monotonic() + seconds)
    assert (reports, tries, len(agenda)) == (["the wire"], ["mend"] * 3, 0)


def test_a_second_end_of_an_outage_does_not_count() -> None:
    undisturbed_time = UndisturbedTime(grace=0)
    undisturbed_time.begin("muster", at=1)
    undisturbed_time.end("muster", at=2)
    undisturbed_time.end("muster", at=9)
    assert undisturbed_time(10) == 9


def test_the_pulse_reports_a_probe_that_fails_for_long() -> None:
    liveness = LivenessCheck(patience=20)
    for at in range(31):
        liveness.record(at, alive=at < 5, excused=False)
    assert liveness.failures == [(26, "/livez has failed for 21 s")]


def test_the_pulse_excuses_killed_processes_and_short_failures() -> None:
    liveness = LivenessCheck(patience=20)
    for at in range(100):
        liveness.record(at, alive=at % 15 == 0, excused=False)
    for at in range(100, 200):
        liveness.record(at, alive=False, excused=True)
    assert liveness.failures == []


def test_the_clock_of_one_process_steps(tmp_path: Path) -> None:
    """The other clocks go on as they are; where there is no compiler, all do."""
    clock = Clock(tmp_path)
    asks = [
        sys.executable,
        "-c",
        "import datetime as d, time; print(time.time(), d.datetime.now().timestamp())",
    ]
    for ahead in (0, 3600, -86400) if clock.can_step else (0,):
        clock.step(ahead)
        said = subprocess.run(clock.wrapped(asks), capture_output=True, text=True, check=True).stdout
        assert all(abs(float(each) - time.time() - ahead) < 600 for each in said.split())
