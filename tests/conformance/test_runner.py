"""The runner: what it prints, what it returns, and that a skip which claims too much is found out."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import __main__ as runner
from tests.conformance import skips
from tests.conformance.__main__ import main
from tests.conformance.amounts import differing, whole_amounts
from tests.conformance.cases import DATA, load
from tests.conformance.judge import judge
from tests.conformance.verdicts import Outcome, Result, Skip
from tests.rows import each_of

GOOD = {"deserved": {"cpu": "2"}, "allocated": {"cpu": "1"}, "request": {}}


def share(name: str, expected: float) -> dict[str, Any]:
    return {"id": name, "kind": "queue.share", "input": GOOD, "expect": {"share": expected}}


def file_of(folder: Path, *cases: dict[str, Any]) -> str:
    path = folder / "cases.json"
    path.write_text(json.dumps({"schemaVersion": 1, "cases": cases}))
    return str(path)


def backoff(name: str, expected: float, **more: object) -> dict[str, Any]:
    """Return the input of a backoff case, as in queueing.json."""
    data = {"initial_s": 1, "max_s": 20, "attempts": 3, **more}
    return {
        "id": name,
        "family": "backoff",
        "source": {"kind": "code"},
        **data,
        "expect": {"wait_s": expected},
    }


def families_file(path: Path, *cases: dict[str, Any]) -> str:
    path.write_text(json.dumps({"schema_version": 1, "units": {}, "cases": cases}))
    return str(path)


def test_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run some cases of all files; test_cases.py has all of them."""
    for file in DATA.glob("*.json"):
        data = json.loads(file.read_text())
        (tmp_path / file.name).write_text(json.dumps(data | {"cases": data["cases"][::20]}))
    monkeypatch.setattr(runner, "DATA", tmp_path)
    assert main([]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[-1].split(", ")[1] == "0 failed"
    assert [line.split()[0] for line in output if "passed   failed  skipped" in line] == [
        "queueing.json",
        "topologies.json",
        "volcano.json",
    ]


def test_a_folder_with_files_of_both_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file_of(tmp_path, share("right", 0.5), share("wrong", 0.9))
    (tmp_path / "more").mkdir()
    families_file(tmp_path / "more" / "families.json", backoff("good", 4), backoff("bad", 5))
    (tmp_path / "README.md").write_text("no cases")
    assert main([str(tmp_path)]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[-1] == "2 passed, 2 failed, 0 skipped"
    rows = [line.split() for line in output]
    assert ["queue.share", "1", "1", "0"] in rows
    assert ["backoff", "1", "1", "0"] in rows
    assert rows.count(["together", "1", "1", "0"]) == 2


def test_a_folder_without_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert f"{tmp_path}: no file *.json" in capsys.readouterr().err


def test_a_rule_that_differs_is_skipped_only_where_it_makes_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capped = backoff("capped", 20, factor=9, attempts=9)
    assert main([families_file(tmp_path / "f.json", backoff("tripled", 9, factor=3), capped)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"


@each_of("preempt_classic", "preempt_hierarchical", "preempt_fair", "admit_cycle", "admit_cycle_fair")
def test_a_workload_that_names_no_queue_takes_nothing(family: str, *, tmp_path: Path) -> None:
    """It waits, and no pod is evicted for it."""
    quota = [[{"flavor": "f", "resources": {"cpu": {"nominal": 1}}}]]
    use = {"flavor": "f", "amount": 1}
    held = {"id": "held", "queue": "q", "usage": [{"name": "p", "count": 1, "usage": {"cpu": use}}]}
    lost = {"id": "lost", "queue": None, "podsets": [{"name": "p", "count": 1, "request": {"cpu": 1}}]}
    case = {
        "id": "x",
        "family": family,
        "queues": [{"name": "q", "resource_groups": quota}],
        "flavors": [{"name": "f"}],
        "admitted": [held],
        "pending": [lost | {"assignment": {"p": {"cpu": {"flavor": "f"}}}, "priority": 9}],
        "expect": {"preempted": [], "admitted": [], "assignments": {}},
    }
    (loaded,) = load(Path(families_file(tmp_path / "f.json", case)))
    assert judge(loaded) == Result(Outcome.PASSED)


def test_admitted_workloads_hold_their_capacity_before_they_run(tmp_path: Path) -> None:
    steps = [
        {"do": "add", "job": "w1", "priority": 1},
        {"do": "add", "job": "w2", "priority": 2},
        {"do": "set_granted_not_running", "job": "w2"},
        {"do": "next", "want": None},
        {"do": "order", "want": ["w2", "w1"]},
        {"do": "mark_satisfied", "job": "w2"},
        {"do": "next", "want": "w1"},
    ]
    case = {"id": "x", "family": "kubequeue_policy", "policy": "Priority", "steps": steps, "expect": {}}
    (loaded,) = load(Path(families_file(tmp_path / "f.json", case)))
    assert judge(loaded) == Result(Outcome.PASSED)


def test_who_waits_for_a_flush_is_active_after_it(tmp_path: Path) -> None:
    """One that was taken out before the flush waits for nothing when it is put back."""
    ops = [
        {"op": "push", "id": "w1"},
        {"op": "pop", "want": "w1"},
        {"op": "return_inadmissible", "id": "w2"},
        {"op": "check_active", "want": []},
        {"op": "flush_inadmissible"},
        {"op": "return_inadmissible", "id": "w1"},
    ]
    expect = {"active": ["w1", "w2"], "pending_total": 2, "moved_by_flush": 1}
    case = {"id": "x", "family": "queue_ops", "workloads": [], "ops": ops, "expect": expect}
    (loaded,) = load(Path(families_file(tmp_path / "f.json", case)))
    assert judge(loaded) == Result(Outcome.PASSED)


def test_the_head_of_a_strict_queue_is_not_tried_without_need(tmp_path: Path) -> None:
    case = {"id": "x", "family": "requeue_rule", "strategy": "StrictFIFO", "reason": "NoFit"}
    active, parked = ({**case, "expect": {"placement": each}} for each in ("active", "inadmissible"))
    cases = load(Path(families_file(tmp_path / "f.json", active, parked)))
    assert [judge(case).outcome for case in cases] == [Outcome.SKIPPED, Outcome.PASSED]


def test_amounts_of_any_size_stay_exact(tmp_path: Path) -> None:
    beyond = 2**63 + 1
    (case,) = load(Path(families_file(tmp_path / "f.json", backoff("big", 1, amount=beyond))))
    assert case.input["amount"] == beyond
    assert whole_amounts({"cpu": beyond}) == {"cpu": beyond}
    assert list(differing("amount", {"cpu": beyond}, {"cpu": beyond + 2}))


def test_a_failure_is_reported_with_its_id_and_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file_of(tmp_path, share("right", 0.5), share("wrong", 0.9))]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith("wrong")
    assert output[1].strip() == "share: expected 0.9, got 0.5"
    assert output[-1] == "1 passed, 1 failed, 0 skipped"


@each_of(
    {"id": "x", "kind": "no.such.kind", "input": {}, "expect": {}},
    {"id": "x", "kind": "session", "input": {"actions": ["juggle"]}, "expect": {}},
    {"id": "x", "kind": "queue.share", "input": {}, "expect": {}},
    {"id": "x", "kind": "resource.op", "input": {"op": "cube", "left": {}, "right": {}}, "expect": {}},
    {"id": "x", "family": "no_such_family"},
    {"id": "x", "family": "backoff"},
)
def test_what_cannot_be_run_fails(case: dict[str, Any], *, tmp_path: Path) -> None:
    assert main([file_of(tmp_path, case)]) == 1


def test_a_skip_that_matches_what_passes_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(skips, "SKIPS", (Skip("too wide", lambda case: True),))
    assert main([file_of(tmp_path, share("right", 0.5), share("wrong", 0.9))]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[1].strip() == "passes, so it must not be skipped as: too wide"
    assert output[-1] == "0 passed, 1 failed, 1 skipped"


def test_that_a_group_does_not_block_its_owner_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything else about the owner reference has to be as in Volcano."""
    pod = {"namespace": "ns", "name": "p", "uid": "1", "requests": {"cpu": "1"}}
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True}

    def case(**more: Any) -> dict[str, Any]:
        expect = {"ownerReferences": [{**reference, **more}]}
        return {"id": "x", "kind": "podgroup.build", "input": {"pod": pod}, "expect": expect}

    assert main([file_of(tmp_path, case(), case(blockOwnerDeletion=True))]) == 0
    output = capsys.readouterr().out
    assert "a PodGroup does not block its owner's deletion" in output
    assert output.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"


@each_of(
    "",
    "[]",
    "{",
    '{"cases": []}',
    '{"schemaVersion": 2, "cases": []}',
    '{"schema_version": 2, "cases": []}',
    '{"schemaVersion": 1}',
    '{"schema_version": 1, "cases": [{"family": "backoff"}]}',
    '{"schema_version": 1, "cases": [{"id": "x"}]}',
    '{"schema_version": 1, "cases": [{"id": "x", "family": null}]}',
    '{"schema_version": 1, "cases": ["x"]}',
)
def test_a_file_without_cases_is_refused(
    text: str, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text)
    assert main([str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.json")]) == 2
    assert "No such file" in capsys.readouterr().err
