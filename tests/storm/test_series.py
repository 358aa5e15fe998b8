"""A campaign's file, its results, the recoveries and the table, all without a cluster."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.rows import each_of
from tests.storm.day import Day
from tests.storm.plan import ROUGH_KINDS, Mix, plan
from tests.storm.recovery import ANSWERS, BINDS, Recovery
from tests.storm.series import VIRTUAL_MIX, BadSeries, Series, Storm, records_of, run
from tests.storm.table import table_of

CAMPAIGNS = sorted((Path(__file__).parent / "campaigns").glob("*.toml"))
RECORD = {
    "mix": "usual",
    "seed": 1,
    "seconds": 60,
    "calm": 50.0,
    "faults": {"kill-muster": 2, "cut-view": 98},
    "missed": {"delete-pod": 3},
    "counts": {"started": 7},
    "evictions": {"an undone start": 4},
    "recoveries": {ANSWERS: {"kill-muster": [1.5, 2.5]}, BINDS: {}},
    "violations": [],
    "judges_agree": True,
}


@each_of(*CAMPAIGNS)
def test_campaigns_can_be_read_and_have_no_storm_twice(file: Path) -> None:
    series = Series.read(file)
    assert len(set(series.storms)) == len(series.storms) > 0


def test_a_mix_says_what_breaks_and_how_often() -> None:
    mix = Mix(faults=0.1, kinds={"kill-muster": 1000, "freeze-muster": 0})
    kinds = [step.kind for step in plan(1, 60, mix) if step.gang_spec is None]
    assert kinds.count("kill-muster") > len(kinds) / 4
    assert "freeze-muster" not in kinds
    assert len(kinds) > 300
    calm = {step.kind for step in plan(1, 60, mix) if step.at > 30}
    assert not calm & ROUGH_KINDS.keys(), "a weight changes nothing about when something may die"


@each_of(
    ("[mixes.a]\nspeed = 3\n[[storms]]\n", "speed"),
    ("[mixes.a]\n", "storms"),
    ("storms", "TOMLDecodeError"),
    ('storms = []\n[mixes.a.kinds]\n"kill-nobody" = 1', "kill-nobody"),
    ('[mixes.a]\n[[storms]]\nmix = "b"\nseeds = [1]\nseconds = 1', "mix: b"),
)
def test_a_file_that_is_wrong_is_refused_with_its_words(text: str, wrong: str, *, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(BadSeries, match=wrong):
        Series.read(file)


def test_finished_campaigns_are_not_run_again_and_failed_ones_are(tmp_path: Path) -> None:
    storms = tuple(Storm("usual", seed, 60) for seed in (1, 2, 3))
    series = Series(tmp_path, {"usual": Mix()}, storms)
    results = tmp_path / "results.jsonl"
    assert series.remaining(records_of(results)) == list(storms)
    lines = [RECORD, {"mix": "usual", "seed": 2, "seconds": 60, "failed": "killed"}]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert series.remaining(records_of(results)) == [storms[1], storms[2]]
    with results.open("a") as file:
        file.write(json.dumps({**RECORD, "seed": 2}) + "\n")
    assert series.remaining(records_of(results)) == [storms[2]]


def test_half_an_hour_of_virtual_time_violates_nothing(tmp_path: Path) -> None:
    storm = Storm(VIRTUAL_MIX, 5, 1800)
    record = run(storm, tmp_path, ())
    assert storm.matches(record)
    assert record["violations"] == []
    assert min(record["counts"][each] for each in ("bound", "finished", "instants")) > 0
    assert "0.5 h of virtual time" in table_of([RECORD, record])


def test_a_start_above_a_ceiling_is_reported() -> None:
    day = Day(5, 1800)
    for name, queue in day._inspector.queues.items():  # what Muster does not know of
        limited = replace(queue.spec, capability={"cpu": "1"})
        day._inspector.queues[name] = replace(queue, spec=limited)
    (violation,) = day.run()["violations"]
    assert "of 1000 cpu" in violation


def test_the_table_sums_all_storms() -> None:
    more = {**RECORD, "seed": 2, "violations": ["12 s: a node was over"]}
    lines = table_of([RECORD, more, {"mix": "dense", "seed": 1, "seconds": 60, "failed": "killed"}])
    words = [line.split() for line in lines.splitlines()]
    assert ["kill-muster", "4", "0", "2.5", "s", "2.5", "s", "-", "-"] in words
    assert ["delete-pod", "0", "6", "-", "-", "-", "-"] in words
    assert ["all", "200", "6", "2.5", "s", "2.5", "s", "-", "-"] in words
    assert ["8", "an", "undone", "start"] in words
    assert "2 storms of 120 s (100 s of them calm), 2 violations" in lines
    assert "usual 2: 12 s: a node was over" in lines
    assert "dense 1: killed" in lines


def test_a_recovery_lasts_from_the_first_repair_to_the_next_answer() -> None:
    recovery = Recovery()
    kill = recovery.begin("kill-muster", outage=True, at=10)
    kill.end(at=14)
    kill.end(at=15)
    for at in (9, 13, 16, 17):
        recovery.answered(at)
    assert recovery.times([12, 18]) == {ANSWERS: {"kill-muster": [2]}, BINDS: {"kill-muster": [4]}}


def test_an_overlapping_outage_cancels_the_recovery() -> None:
    recovery = Recovery()
    recovery.begin("cut-view", outage=False, at=10).end(at=10)
    recovery.begin("kill-muster", outage=True, at=12).end(at=14)
    recovery.answered(11)
    recovery.answered(15)
    assert recovery.times([15]) == {
        ANSWERS: {"cut-view": [1], "kill-muster": [1]},
        BINDS: {"kill-muster": [1]},
    }


def test_a_recovery_does_not_count_while_another_outage_lasts() -> None:
    recovery = Recovery()
    recovery.begin("kill-muster", outage=True, at=10).end(at=14)
    recovery.begin("cut-view", outage=False, at=15).end(at=15)
    recovery.answered(20)
    assert recovery.times([20])[ANSWERS] == {"kill-muster": [6]}
