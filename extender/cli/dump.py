"""`muster dump` and `muster replay`: the state of a running Muster, and the decisions on that state."""

import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from extender.api.setting_kinds import ADDRESS, Address
from extender.cli.access import Flags, access_flags, open_access
from extender.cli.completion import complete_what_if_term
from extender.cli.output import InvalidContent, echo, output_flag, parser_of

if TYPE_CHECKING:
    from extender.domain.explain.dump import Dump, Replay
    from extender.domain.snapshot.decisions import GroupDecision

F = TypeVar("F", bound=Callable[..., Any])
_MAX_DUMP_BYTES = 2**30  # bytes of JSON, enough for some millions of pods
_GZIP_PREFIX = b"\x1f\x8b"
_DAMAGE_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)


def debug_port_flags(command: F) -> F:
    """Add the flags of `debug_page` to a command."""
    help_ = "Ask this address. [default: the leading pod in the cluster of the kubeconfig]"
    address = click.option("--debug-address", metavar="HOST:PORT", callback=parser_of(ADDRESS), help=help_)
    return access_flags(address(command), "kube-muster")


def debug_page(
    page: str, max_bytes: int, *, debug_address: Address | None, namespace: str | None, **flags: Any
) -> bytes:
    """Return a debug page, cut after `max_bytes`.

    Raises:
        ClickException: The page cannot be read.
    """
    from http.client import HTTPConnection

    from extender.cli.installation import DEBUG_TIMEOUT, Installation, read_debug_page

    if debug_address is not None:
        connection = HTTPConnection(*debug_address, timeout=DEBUG_TIMEOUT)
        return read_debug_page(connection, str(debug_address), page, max_bytes)
    with open_access(Flags(namespace=namespace or "kube-muster", **flags)) as access:
        return Installation(access).debug_page(page, max_bytes)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--anonymous", is_flag=True, help="Hash all names and the values of labels.")
@debug_port_flags
def dump(file: Path, anonymous: bool, **port_flags: Any) -> None:
    """Write the newest state and decisions to FILE.

    FILE may be - for standard output. The dump is JSON, compressed if FILE ends in .gz. It has the names and
    labels of the whole cluster, but no secret and no environment. It is read from the debug port of the
    leading pod, by port-forward.
    """
    raw = _fetch_dump(port_flags)
    if anonymous:
        raw = _with_pseudonyms(raw)
    if str(file) == "-":
        sys.stdout.buffer.write(raw)
        return
    if file.suffix == ".gz":
        raw = gzip.compress(raw, compresslevel=1)
    try:
        file.write_bytes(raw)
    except OSError as fault:
        raise InvalidContent(f"{file}: cannot be written: {fault.strerror}") from fault
    click.echo(f"{file} written, {len(raw):,} bytes", err=True)


def _fetch_dump(port_flags: dict[str, Any]) -> bytes:
    """Return the JSON of a dump. The debug port sends it compressed."""
    compressed_file = BytesIO(debug_page("dump", _MAX_DUMP_BYTES, **port_flags))
    with suppress(*_DAMAGE_ERRORS):
        if raw := gzip.GzipFile(fileobj=compressed_file).read(_MAX_DUMP_BYTES):
            return raw
    raise click.ClickException("the answer is not of Muster's debug port")


def _with_pseudonyms(raw: bytes) -> bytes:
    """Return a dump with pseudonyms instead of names. The key of the pseudonyms is not stored."""
    from secrets import token_bytes

    from extender import __version__
    from extender.domain.explain.dump import InvalidDump, keyed_hash, read_dump, rename_dump

    try:
        return rename_dump(read_dump(raw, __version__), keyed_hash(token_bytes(32)))
    except InvalidDump as fault:
        raise click.ClickException(f"the debug port sent no valid dump: {fault}") from fault


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--set",
    "terms",
    multiple=True,
    metavar="TERM",
    shell_complete=complete_what_if_term,
    help="Show the decisions after a change, as --what-if of muster why.",
)
@output_flag(("text", "json"), "text")
def replay(file: Path, terms: tuple[str, ...], output: str) -> None:
    """Repeat the decisions of a dump and compare.

    The decisions are made without a cache, and once more with one. With --set, which may be given several
    times, the groups with another decision are listed.

    Exit status: 0 when both equal those in FILE, byte for byte, and always with --set; 1 when they differ; 2
    when FILE is no dump of this version.
    """
    from extender.domain.explain.dump import replay

    snapshot_dump = read(file)
    if terms:
        return _show_what_if(file, snapshot_dump, terms, output)
    with _report_decision_errors(file):
        result = replay(snapshot_dump.snapshot, snapshot_dump.decisions)
    if output == "json":
        import msgspec

        document = {
            "muster": snapshot_dump.file.muster,
            "taken": snapshot_dump.file.taken,
            "groups": len(snapshot_dump.snapshot.groups),
            "same": result.is_same,
            "differences": result.differences,
        }
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        echo(_comparison_text(snapshot_dump, result))
    sys.exit(0 if result.is_same else 1)


@contextmanager
def _report_decision_errors(file: Path) -> Iterator[None]:
    """Turn an error of a decision into a message, because an edited dump may contradict itself."""
    try:
        yield
    except click.ClickException:
        raise
    except Exception as fault:
        message = f"nothing can be decided on it: {type(fault).__name__}: {fault}"
        raise InvalidContent(f"{file}: {message}") from fault


def _show_what_if(file: Path, snapshot_dump: "Dump", terms: Sequence[str], output: str) -> None:
    from extender.cli.suppositions import paragraphs
    from extender.domain.explain.what_if import BadTerm, suppositions, what_if

    with _report_decision_errors(file):
        try:
            result = what_if(snapshot_dump.snapshot, suppositions(terms))
        except BadTerm as fault:
            raise click.UsageError(f"--set: {fault}") from fault
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
    else:
        echo("\n".join(paragraphs(result)))


def read(file: Path) -> "Dump":
    from extender import __version__
    from extender.domain.explain.dump import InvalidDump, read_dump

    try:
        with file.open("rb") as stream:
            is_gzip = stream.peek(2).startswith(_GZIP_PREFIX)
            raw = (gzip.GzipFile(fileobj=stream) if is_gzip else stream).read(_MAX_DUMP_BYTES)
        return read_dump(raw, __version__)
    except _DAMAGE_ERRORS as fault:
        raise InvalidContent(f"{file}: truncated or damaged: {fault}") from fault
    except OSError as fault:
        raise InvalidContent(f"{file}: cannot be read: {fault.strerror}") from fault
    except InvalidDump as fault:
        raise InvalidContent(f"{file}: {fault}") from fault


def _comparison_text(snapshot_dump: "Dump", result: "Replay") -> str:
    groups, nodes = snapshot_dump.snapshot.groups, snapshot_dump.snapshot.nodes
    title = f"{len(groups)} groups on {len(nodes.row_of)} nodes at {snapshot_dump.file.taken}"
    if result.is_same:
        verdicts = Counter(decision.verdict.value for decision in result.decisions.groups.values())
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        return f"{title}: equal decisions ({counts})" if counts else f"{title}: equal decisions"
    if not result.differences:
        return f"{title}: equal decisions on groups, but not on queues, evictions or timestamps"
    lines = [f"  {row.group}: {_outcome(row.before)} -> {_outcome(row.now)}" for row in result.differences]
    return "\n".join([f"{title}: other decisions on {len(lines)}", *lines])


def _outcome(decision: "GroupDecision | None") -> str:
    if decision is None:
        return "nothing"
    return f"{decision.verdict} ({decision.reason})" if decision.reason else str(decision.verdict)
