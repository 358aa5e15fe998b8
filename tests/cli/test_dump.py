"""muster dump, from a debug port, and muster replay."""

import gzip
import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from extender import __version__
from extender.cli import main
from extender.domain.explain.dump import dump
from extender.web.debug import version
from tests.cli.conftest import DebugPort
from tests.domain.builders import node, queue
from tests.domain.world import World, gang, nodes
from tests.rows import each_of


def world() -> World:
    return World(
        nodes("a", "b"), queue("q"), gang("runs", 2, queue="q"), gang("waits", 9, queue="q")
    ).settle()


def dump_of(of: World) -> bytes:
    written = dump(of.ledger.decisions, version(), {"window": 1000})
    assert written is not None
    return written


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


def complaint(*arguments: object, status: int) -> str:
    result = muster(*arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    return result.stderr.partition("Error: ")[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


@pytest.mark.parametrize("name", ["state.json", "state.json.gz"])
def test_a_dump_is_written_and_replayed(debug_port: DebugPort, tmp_path: Path, name: str) -> None:
    file, address = tmp_path / name, debug_port(dump=lambda: WHOLE)
    assert muster("dump", file, "--debug-address", address).exit_code == 0
    raw = file.read_bytes()
    assert (gzip.decompress(raw) if name.endswith(".gz") else raw) == dump_of(world())
    result = muster("replay", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "2 groups on 2 nodes at 2026-01-01T00:16:40Z: equal decisions (1 Starting, 1 Waiting)\n"
    )


def test_an_anonymous_dump_has_other_names(debug_port: DebugPort, file: Path) -> None:
    address = debug_port(dump=lambda: WHOLE)
    assert muster("dump", file, "--debug-address", address, "--anonymous").exit_code == 0
    assert b"waits" not in file.read_bytes()
    assert muster("replay", file).stdout.endswith("(1 Starting, 1 Waiting)\n")
    other = debug_port(dump=lambda: gzip.compress(b"{}"))
    message = complaint("dump", file, "--debug-address", other, "--anonymous", status=1)
    assert message.startswith("the debug port sent no valid dump: ")


def test_a_dump_goes_to_standard_output(debug_port: DebugPort) -> None:
    address = debug_port(dump=lambda: WHOLE)
    result = muster("dump", "-", "--debug-address", address)
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, dump_of(world()), "")


def test_a_replay_names_groups_with_another_decision(file: Path) -> None:
    state, later = dump_of(world()), dump_of(world().add(node("c", cpu="64")).settle())
    document = json.loads(state)
    document["decisions"] = json.loads(later)["decisions"]
    file.write_text(json.dumps(document))
    result = muster("replay", file)
    assert result.exit_code == 1
    assert result.stdout.endswith(" on 1\n  team/waits: Starting -> Waiting (NeverFits)\n")
    shown = json.loads(muster("replay", file, "-o", "json").stdout)
    assert (shown["same"], shown["groups"], shown["muster"]) == (False, 2, __version__)
    (one,) = shown["differences"]
    assert one["group"] == "team/waits"
    assert (one["before"]["verdict"], one["now"]["reason"]) == ("Starting", "NeverFits")


@each_of(
    (["nodes=+1:a"], ", it waits: NeverFits.\n"),
    (["nodes=+1:a", "queue.weight=q:3", "delete=podgroup/team/waits"], "nothing changes.\n"),
)
def test_other_decisions_under_other_terms_are_listed(terms: list[str], said: str, *, file: Path) -> None:
    file.write_bytes(dump_of(world()))
    flags = [part for term in terms for part in ("--set", term)]
    result = muster("replay", file, *flags)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(said)
    shown = json.loads(muster("replay", file, *flags, "-o", "json").stdout)
    assert shown["terms"] == terms


def test_a_term_that_makes_no_sense_is_named(file: Path) -> None:
    file.write_bytes(dump_of(world()))
    message = complaint("replay", file, "--set", "queue.weight=gone:3", status=2)
    assert message.startswith("--set: 'queue.weight=gone:3': ")
    assert "the node to copy is missing" in complaint("replay", file, "--set", "nodes=+1", status=2)
    assert "the namespace is missing" in complaint("replay", file, "--set", "delete=podgroup/waits", status=2)


@each_of((), ("--set", "nodes=+1:a"))
def test_a_state_that_contradicts_itself_is_refused(flags: tuple[str, ...], *, file: Path) -> None:
    document = json.loads(dump_of(world()))
    groups = document["snapshot"]["groups"]
    groups["team/other"] = groups.pop("team/runs")
    file.write_text(json.dumps(document))
    assert complaint("replay", file, *flags, status=2).startswith(f"{file}: nothing can be decided on it: ")


def test_a_port_that_has_none_is_named(debug_port: DebugPort, file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = f"127.0.0.1:{free.getsockname()[1]}"
    message = complaint("dump", file, "--debug-address", nowhere, status=1)
    assert message.startswith(f"no debug port at {nowhere}: ")
    undecided = debug_port(dump=lambda: None)
    message = complaint("dump", file, "--debug-address", undecided, status=1)
    assert message.startswith(f"the debug port at {undecided} answered 404")
    for sent in (b"hello", b"", WHOLE[:100], WHOLE[:200] + b"\0" * 50 + WHOLE[250:]):
        other = debug_port(dump=lambda sent=sent: sent)
        message = complaint("dump", file, "--debug-address", other, status=1)
        assert message == "the answer is not of Muster's debug port\n"
    assert not file.exists()
    assert "--debug-address" in complaint("dump", file, "--debug-address", "here", status=2)


def test_a_file_that_cannot_be_written_is_named(debug_port: DebugPort, file: Path) -> None:
    file = file.parent / "nowhere" / "state.json"
    message = complaint("dump", file, "--debug-address", debug_port(dump=lambda: WHOLE), status=2)
    assert message == f"{file}: cannot be written: No such file or directory\n"


WHOLE = gzip.compress(dump_of(world()), mtime=0)  # the same in each worker: tests are named by it
DAMAGED = "truncated or damaged"


@each_of(
    (None, "cannot be read: No such file or directory"),
    (WHOLE[:100], f"{DAMAGED}: Compressed file ended"),
    (WHOLE[:-1], f"{DAMAGED}: Compressed file ended"),
    (WHOLE[:200] + b"\0" * 50 + WHOLE[250:], f"{DAMAGED}: "),
    (b'{"kind": "MusterDump", "muster": "0.0.1"}', "muster 0.0.1 "),
)
def test_a_file_that_is_no_dump_is_refused(raw: bytes | None, why: str, *, tmp_path: Path) -> None:
    file = tmp_path / "state.json.gz"
    if raw is not None:
        file.write_bytes(raw)
    assert complaint("replay", file, status=2).startswith(f"{file}: {why}")
