"""Slices of the CPU: where they can be made, and the messages where they cannot."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.bench import slices


@pytest.mark.parametrize("version", [1, 2])
def test_a_slice_is_limited_by_the_files_of_its_cgroup_version(tmp_path: Path, version: int) -> None:
    (tmp_path / "cpu").mkdir()
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    hierarchy = slices.find_hierarchy(tmp_path, "0::/us\n1:cpuacct,cpu:/us\n")
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


@pytest.mark.parametrize("version", [1, 2])
def test_a_memory_limit_is_read_from_the_files_of_its_cgroup_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    (tmp_path / "memory").mkdir()
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr(slices, "_MOUNTED", tmp_path)
    group = slices.MemoryGroup("storm")
    (folder,) = tmp_path.rglob("storm")
    limit, reported, unlimited = {
        1: ("memory.limit_in_bytes", "memory.oom_control", "-1"),
        2: ("memory.max", "memory.events", "max"),
    }[version]
    for name in (limit, reported):
        (folder / name).write_text("oom 3\noom_kill 2\n")
    for count, written in ((4096, "4096"), (None, unlimited)):
        group.limit(count)
        assert (folder / limit).read_text() == written
    assert group.kill_count() == 2


def test_only_slices_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    ended_process = subprocess.Popen(["true"])
    ended_process.wait()
    ours, left, others = (
        tmp_path / name
        for name in (f"muster-bench-{os.getpid()}-muster", f"muster-bench-{ended_process.pid}-clients", "x")
    )
    for folder in (ours, left, others):
        folder.mkdir()
    slices.remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted((ours, others))


def test_a_machine_without_cgroups_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.bench.__main__ import main  # imports all cases: too much for each process of tests

    monkeypatch.setattr(slices, "_MOUNTED", tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["makespan", "--own-cores"])
    assert ended.value.code == 2
    assert "--own-cores: no cgroup with a limit of cpu can be made" in capsys.readouterr().err
