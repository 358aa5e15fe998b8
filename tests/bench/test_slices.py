"""Where slices of the CPU can be made, and what is said where not."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench import slices


@pytest.mark.parametrize("version", [1, 2])
def test_a_slice_is_limited_in_the_words_of_its_version(tmp_path: Path, version: int) -> None:
    (tmp_path / "cpu").mkdir()
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    hierarchy = slices.find(tmp_path, "0::/us\n1:cpuacct,cpu:/us\n")
    folder = hierarchy.root / "part"
    folder.mkdir()
    if version == 2:
        (folder / "cpu.max").touch()
    hierarchy.limit(folder, 0.3)
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert hierarchy.home == hierarchy.root / "us"
    assert written in (
        {"cpu.max": "3000 10000"},
        {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "3000"},
    )
    assert ("cpu.max" in written) == (version == 2)


def test_only_slices_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    ours, left, others = (
        tmp_path / name
        for name in (f"muster-bench-{os.getpid()}-muster", f"muster-bench-{gone.pid}-clients", "x")
    )
    for folder in (ours, left, others):
        folder.mkdir()
    slices.remove_left(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted((ours, others))


def test_a_machine_without_them_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slices, "_MOUNTED", tmp_path)
    with pytest.raises(SystemExit) as ended:
        bench.main(["makespan", "--own-cores"])
    assert ended.value.code == 2
    assert "--own-cores: no cgroup with a limit of CPU can be made" in capsys.readouterr().err
