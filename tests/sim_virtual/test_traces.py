"""Traces as they are written, and what is said of broken ones."""

from pathlib import Path

import pytest

from extender.sim.virtual.trace import Row, read
from extender.sim.virtual.workload import InvalidWorkload

HEAD = "arrival,queue,group,members,minMember,cpu,memory,gpu,seconds,priority\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text)
    return path


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(InvalidWorkload) as caught:
        read(written(folder, text))
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_every_column(tmp_path: Path) -> None:
    text = "namespace,example.com/fpga," + HEAD + "team,2,1.5,q,g,4,3,500m,1Gi,1,60,-5\n"
    assert read(written(tmp_path, text)) == [
        Row(
            arrival=1.5,
            group="g",
            members=4,
            min_member=3,
            seconds=60.0,
            requests={"example.com/fpga": "2", "cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"},
            queue="q",
            namespace="team",
            priority=-5,
        )
    ]


def test_empty_cells_take_the_default(tmp_path: Path) -> None:
    text = "# a comment first\n\n" + HEAD + '0,,"g",,,,,,,\n'
    assert read(written(tmp_path, text)) == [Row(0.0, "g", 1, 1)]


SECONDS = "must be seconds, 0 or more"
QUANTITY = "must be a quantity such as 500m, 2 or 16Gi"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x,q,g,1,,1,,,5,", f"arrival: invalid value 'x': {SECONDS}"),
        ("-1,q,g,1,,1,,,5,", f"arrival: invalid value '-1': {SECONDS}"),
        ("inf,q,g,1,,1,,,5,", f"arrival: invalid value 'inf': {SECONDS}"),
        (",q,g,1,,1,,,5,", f"arrival: invalid value '': {SECONDS}"),
        (
            "0,q,a/b,1,,1,,,5,",
            "group: invalid value 'a/b': must be a name of letters, digits, '-', '_' and '.'",
        ),
        ("0,q,g,0,,1,,,5,", "members: invalid value '0': must be a whole number of at least 1"),
        ("0,q,g,2,3,1,,,5,", "minMember: invalid value 3: must be at most the 2 members of the row"),
        ("0,q,g,1,,two,,,5,", f"cpu: invalid value 'two': {QUANTITY}"),
        ("0,q,g,1,,-1,,,5,", f"cpu: invalid value '-1': {QUANTITY}"),
        ("0,q,g,1,,1,,,nan,", f"seconds: invalid value 'nan': {SECONDS}"),
        ("0,q,g,1,,1,,,5,high", "priority: invalid value 'high': must be a whole number"),
        ("0,q,g,1", "4 cells; the header has 10"),
        ("0,other,good,1,,1,,,5,", "queue: invalid value 'other': group good is in 'q'"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    assert faults(tmp_path, f"{HEAD}0,q,good,1,,1,,,5,\n{line}\n") == [f"t.csv:3: {message}"]


def test_all_broken_lines_are_named(tmp_path: Path) -> None:
    assert [fault.split(": ")[0] for fault in faults(tmp_path, HEAD + "x\n" * 2 + "0,q,g,1,,x,x,,5,\n")] == [
        "t.csv:2",
        "t.csv:3",
        "t.csv:4",
        "t.csv:4",
    ]
    assert faults(tmp_path, HEAD + "x\n" * 25)[-1] == "and 5 more"


def test_a_broken_header_is_named(tmp_path: Path) -> None:
    missing, unknown, *_ = sorted(faults(tmp_path, "arrival,grp,members,members\n1,2,3,4\n"))
    assert "t.csv:1: column 'group': missing" in missing
    assert "t.csv:1: column 'grp': unknown: must be arrival, group" in unknown


@pytest.mark.parametrize("text", ["", "# nothing\n", HEAD])
def test_a_trace_without_rows_is_a_fault(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidWorkload, match=r"none\.csv: cannot be read: No such file"):
        read(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidWorkload, match=r"b\.csv: cannot be read"):
        read(tmp_path / "b.csv")
