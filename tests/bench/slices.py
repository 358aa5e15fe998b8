"""Slices of the CPU by cgroups, as if each part ran on its own machine, and memory limits for storms.

Without slices, CPU time that one part saves would make the other parts faster.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

CORES = {"control plane": 1.1, "scheduler": 0.3, "muster": 0.3, "clients": 0.3}
_PERIOD_MICROSECONDS = 10_000  # maximum wait in microseconds of a process that has used up its slice
_NAME = "muster-bench"
_MOUNTED = Path("/sys/fs/cgroup")


class NoSlices(Exception):
    """Error for a machine without usable cgroups. The message names the reason."""


class Hierarchy(NamedTuple):
    """Hierarchy of cgroups that can limit CPU or memory."""

    root: Path
    home: Path  # cgroup of this process

    def limit(self, folder: Path, cores: float) -> None:
        """Limit the CPU of a cgroup to a number of cores."""
        quota = round(cores * _PERIOD_MICROSECONDS)
        if (folder / "cpu.max").exists():
            (folder / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
        else:  # version 1
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))


@contextmanager
def sliced(parts: Mapping[str, Iterable[int]]) -> Iterator[None]:
    """Limit each part to its number of cores in CORES while the context is active.

    `parts` has the process ids of each part.
    """
    hierarchy, folders = find_hierarchy(), dict[str, Path]()
    remove_leftovers(hierarchy.root)
    try:
        for part, pids in parts.items():
            folders[part] = folder = hierarchy.root / f"{_NAME}-{os.getpid()}-{part.replace(' ', '-')}"
            folder.mkdir()
            hierarchy.limit(folder, CORES[part])
            _move(pids, folder)
        yield
    finally:
        for folder in folders.values():
            _move(map(int, (folder / "cgroup.procs").read_text().split()), hierarchy.home)
            folder.rmdir()


def remove_leftovers(root: Path) -> None:
    """Remove the empty slices that killed processes have left."""
    for folder in root.glob(f"{_NAME}-*"):
        pid = folder.name.removeprefix(f"{_NAME}-").partition("-")[0]
        if not Path("/proc", pid).exists():
            with suppress(OSError):  # The slice is in use, or was already removed.
                folder.rmdir()


class MemoryGroup:
    """Cgroup whose processes share a memory limit. The constructor raises NoSlices without usable cgroups."""

    def __init__(self, name: str) -> None:
        self._hierarchy = find_hierarchy(controller="memory")
        self._folder = self._hierarchy.root / name
        self._folder.mkdir(exist_ok=True)

    def add(self, pids: Iterable[int]) -> None:
        _move(pids, self._folder)

    def limit(self, count: int | None) -> None:
        """Limit the memory of the group to `count` bytes. None means no limit."""
        unified_file = self._folder / "memory.max"
        if unified_file.exists():
            unified_file.write_text(str(count or "max"))
        else:  # version 1
            (self._folder / "memory.limit_in_bytes").write_text(str(count or -1))

    def kill_count(self) -> int:
        """Return the number of processes of this group that the kernel's OOM killer has killed."""
        unified_file = self._folder / "memory.events"
        counter_file = unified_file if unified_file.exists() else self._folder / "memory.oom_control"
        return int(dict(map(str.split, counter_file.read_text().splitlines()))["oom_kill"])

    def dissolve(self) -> None:
        """Move the processes back to the cgroup of this process, and remove the group."""
        _move(map(int, (self._folder / "cgroup.procs").read_text().split()), self._hierarchy.home)
        self._folder.rmdir()


def find_hierarchy(mounted: Path | None = None, own_cgroups: str = "", controller: str = "cpu") -> Hierarchy:
    """Return the hierarchy of cgroups for a controller. Raise NoSlices without usable cgroups.

    `own_cgroups` is the text of /proc/self/cgroup. Tests replace the text and the mount point.
    """
    mounted = mounted or _MOUNTED
    cgroup_lines = (
        line.split(":", 2) for line in (own_cgroups or Path("/proc/self/cgroup").read_text()).splitlines()
    )
    own_groups = {name: path.lstrip("/") for _, names, path in cgroup_lines for name in names.split(",")}
    controllers_file = mounted / "cgroup.controllers"
    try:
        if controllers_file.exists() and controller in controllers_file.read_text().split():
            (mounted / "cgroup.subtree_control").write_text(f"+{controller}")
            root, own_group = mounted, own_groups[""]
        else:
            root, own_group = mounted / controller, own_groups[controller]
        test_folder = root / f"{_NAME}-{os.getpid()}"
        test_folder.mkdir()
        test_folder.rmdir()
    except (OSError, KeyError) as fault:
        raise NoSlices(f"no cgroup with a limit of {controller} can be made in {mounted}: {fault}") from fault
    return Hierarchy(root, root / own_group)


def _move(pids: Iterable[int], folder: Path) -> None:
    """Move processes into a cgroup."""
    for pid in pids:
        with suppress(ProcessLookupError):  # The process has just ended.
            (folder / "cgroup.procs").write_text(str(pid))
