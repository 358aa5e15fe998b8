"""`muster run`: the embedded cluster on the terminal. It imports extender.sim only when it runs."""

import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from math import prod
from pathlib import Path
from re import fullmatch
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from extender.api.configuration import Configuration, InvalidConfiguration
from extender.api.keys import GPU
from extender.api.setting_kinds import ADDRESS, Address, Kind, duration, text_reader, within
from extender.api.units import as_duration, rounded_up
from extender.cli.output import InvalidContent, WholeNumber, parser_of
from extender.shipped import EXAMPLE

if TYPE_CHECKING:
    from extender.sim.embedded import Embedded
    from extender.sim.show.frames import Rerun

NEVER_STARTED, INTERRUPTED = 3, 130  # exit statuses of muster run and muster simulate
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

F = TypeVar("F", bound=Callable[..., Any])
Default = tuple[str | int | None, str]


# ---- flags that muster simulate has, too: files and nodes


_read_positive = text_reader(lambda text: rounded_up(text, 1000) > 0)
_QUANTITY_KIND = Kind("a quantity above 0, such as 500m, 4 or 16Gi", _read_positive)
_MAX_NODES = 5000


def _read_sizes(text: str) -> tuple[int, ...]:
    """Return the numbers of blocks (optional), of racks in each block, and of nodes in each rack."""
    sizes = tuple(map(int, text.split("x")))
    if len(sizes) not in (2, 3) or min(sizes) < 1 or prod(sizes) > _MAX_NODES:
        raise ValueError(text)
    return sizes


def _read_devices(text: str) -> tuple[str, int]:
    """Return a DeviceClass, and the number of its devices on each node."""
    name, _, number = text.partition("=")
    if not fullmatch(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", name) or not 1 <= int(number) <= _MAX_DEVICES:
        raise ValueError(text)
    return name, int(number)


_MAX_DEVICES = 128  # the API's maximum for one ResourceSlice
_DEVICES_KIND = Kind(f"CLASS=NUMBER, such as gpu=8, with at most {_MAX_DEVICES}", _read_devices)
_RACKS = Kind(f"RACKSxNODES or BLOCKSxRACKSxNODES, such as 2x4, with 1 to {_MAX_NODES} nodes", _read_sizes)
_SPEED_KIND = Kind("a number from 0.001 to 1000000, such as 0.5 or 4", within(float, "0.001", "1e6"))


def files_flag(default: str = "") -> Callable[[F], F]:
    """Add the flags -f (as the parameter `files`) and --create-namespaces to a command."""
    files = click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A file or folder of objects, in YAML or JSON, or - for the standard input;"
        f" may be given several times.{default}",
    )
    namespaces = click.option(
        "--create-namespaces", is_flag=True, help="Create missing namespaces of objects."
    )
    return lambda command: files(namespaces(command))


def node_flags(
    count_kind: WholeNumber, count: Default, cpu: Default, memory: Default, gpu: Default
) -> Callable[[F], F]:
    """Add the flags --nodes, --node-cpu, --node-memory and --node-gpu to a command.

    A default is a pair: the value without the flag (None if the command determines it), and its text in the
    help.
    """
    flags = (
        ("--nodes", {"type": count_kind}, count, "The number of nodes."),
        ("--node-cpu", {"callback": parser_of(_QUANTITY_KIND)}, cpu, "The cpu of each node."),
        ("--node-memory", {"callback": parser_of(_QUANTITY_KIND)}, memory, "The memory of each node."),
        ("--node-gpu", {"type": WholeNumber(0, 1024)}, gpu, f"The number of {GPU} of each node."),
    )

    def decorate(command: F) -> F:
        command = click.option(
            "--node-devices",
            metavar="CLASS=NUMBER",
            callback=parser_of(_DEVICES_KIND),
            help="The devices of each node, by a DeviceClass of that name: gpu=8.",
        )(command)
        for flag, parameters, (value, default_text), text in reversed(flags):
            help = f"{text} [default: {default_text}]"
            command = click.option(flag, default=value, help=help, **parameters)(command)
        return command

    return decorate


half_life_flag = click.option(
    "--usage-half-life",
    metavar="DURATION",
    callback=parser_of(duration("0s", "8760h")),
    help="The time after which past usage counts half, as for muster serve; 0s: it never counts. "
    f"[default: {as_duration(Configuration().usage_half_life)}]",
)


@click.command(context_settings={"max_content_width": 110})
@files_flag(" [default: the example]")
@click.option("--until-settled", is_flag=True, help="End when nothing changes any more, also on a terminal.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json"]),
    help="Print only the outcome, once nothing changes any more.",
)
@node_flags(WholeNumber(0, _MAX_NODES), (3, "3"), ("4", "4"), ("16Gi", "16Gi"), (0, "none"))
@click.option(
    "--racks",
    metavar="RACKSxNODES",
    callback=parser_of(_RACKS),
    help="Racks with nodes instead of --nodes, as 2x4, or blocks of racks, as 2x2x4, and their Topology.",
)
@click.option(
    "--speed",
    metavar="FACTOR",
    callback=parser_of(_SPEED_KIND),
    help="The factor by which pods run faster. [default: 4; 1 on a terminal, where the cluster stays]",
)
@click.option("--seed", type=int, help="The random seed; the same seed gives the same run.")
@half_life_flag
@click.option(
    "--listen",
    callback=parser_of(ADDRESS),
    default="127.0.0.1:0",
    show_default=True,
    metavar="ADDRESS",
    help="The address of the embedded API server; port 0 is any free one. It has no authentication.",
)
def run(**options: Any) -> None:
    """Run queues and gangs in an embedded cluster.

    The cluster needs nothing but this process. On a terminal it stays until Ctrl-C, for kubectl and muster in
    another terminal; elsewhere it ends when nothing changes any more. Pods run for the seconds of their
    annotation sim.kube-muster.io/run-seconds, or without end. Nodes in files replace the default ones.

    Exit status: 0 if all objects started, 3 if a group never started or Muster had no group to start, 1 if
    Muster failed, 2 for invalid flags or files, 130 if a signal came before all objects had started.
    """
    with orderly_end():
        try:
            sys.exit(_run(**options))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


def _run(files: tuple[Path, ...], listen: Address, output: str | None, **options: Any) -> int:
    """Run the cluster, and return the exit status."""
    manifests = import_module("extender.files.manifests")
    embedded = import_module("extender.sim.embedded")
    paths, folder, program_file = files or (EXAMPLE,), Path.cwd(), Path(sys.argv[0])
    files_here = [str(path.relative_to(folder) if path.is_relative_to(folder) else path) for path in paths]
    # If the program is not on $PATH, show its whole path, so that commands work in any folder.
    is_on_path = shutil.which("muster") or not program_file.is_file()
    program = "muster" if is_on_path else shlex.quote(str(program_file.absolute()))
    try:
        objects, notes = manifests.load(paths, options["create_namespaces"])
        for remark in notes:
            click.echo(remark, err=True)
        is_repeatable = all(path.is_file() or path.is_dir() for path in paths)
        listener = import_module("extender.web.sockets").listen("--listen", listen)
        half_life = options["usage_half_life"]
        serve_arguments = () if half_life is None else ("--usage-half-life", as_duration(half_life))
        frames = import_module("extender.sim.show.frames")
        stays_open = frames.is_live(sys.stdout) and not output and not options["until_settled"]
        speed = options["speed"] or (1.0 if stays_open else 4.0)  # users watch a cluster that stays
        with embedded.Embedded(
            speed=speed, seed=options["seed"], listener=listener, serve_arguments=serve_arguments
        ) as cluster:
            has_own_nodes = any(manifest.object["kind"] == "Node" for manifest in objects)
            amounts = [options[name] for name in ("node_cpu", "node_memory", "node_gpu")]
            if racks := options["racks"]:
                cluster.make_racks(racks, *amounts)
            elif not has_own_nodes:
                cluster.make_nodes(options["nodes"], *amounts)
            if devices := options["node_devices"]:
                cluster.make_devices(*devices)
            rerun = frames.Rerun(
                program,
                files_here,
                has_own_nodes=bool(has_own_nodes or racks),
                is_repeatable=is_repeatable,
                flags=_flags_of_nodes(racks, devices),
            )
            pace_text = f"Pods run {speed:g} times as fast as stated. " if speed != 1 else ""
            return _present(cluster, objects, rerun, output, stays_open, pace_text)
    except manifests.InvalidManifests as fault:
        raise InvalidContent(str(fault)) from fault
    except InvalidConfiguration as fault:
        raise click.UsageError(str(fault)) from fault
    except embedded.ServeFailed as fault:
        raise click.ClickException(str(fault)) from fault


def _flags_of_nodes(racks: tuple[int, ...] | None, devices: tuple[str, int] | None) -> list[str]:
    flags = [f"--racks {'x'.join(map(str, racks))}"] if racks else []
    flags += [f"--node-devices {'='.join(map(str, devices))}"] if devices else []
    return flags


def _present(
    cluster: "Embedded", objects: list[Any], rerun: "Rerun", output: str | None, stays_open: bool, pace: str
) -> int:
    """Show the run, and return the exit status. `pace` is a sentence on how fast pods run."""
    views = import_module("extender.sim.show.frames")
    view = views.View() if output else views.view_for(sys.stdout)
    session = import_module("extender.sim.embedded").Session(cluster, view, stays_open)
    session.create(objects)
    for job in session.unmanaged_objects:
        click.echo(job.note, err=True)
    is_interrupted = False
    try:
        program = rerun.program
        end = "Ctrl-C ends it." if stays_open else "It ends when nothing changes any more."
        lines = [
            f"{pace}{end} In another terminal:",
            f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}",
        ]
        groups = "kubectl get podgroups,pods" if shutil.which("kubectl") else f"{program} podgroup list"
        lines += [f"{program} why NAME", groups, f"{program} queue list"]
        with _dashboard(cluster, lines) if stays_open else nullcontext():
            session.run(lines)
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        canvas = import_module("extender.sim.show.tables").canvas_of(sys.stdout)
        state, lines = session.state, []
        if state:
            unstarted = (session.unmanaged_objects, session.refusals())
            lines = views.closing_summary(state, session.log, rerun, canvas, *unstarted)
        view.end(lines)
    if is_interrupted:
        return 0 if stays_open and session.everything_started else INTERRUPTED
    if output:
        for _, text in session.refusals():
            click.echo(text, err=True)
        report = session.state.report
        msgspec = import_module("msgspec")
        click.echo(str(msgspec.json.format(msgspec.json.encode(report), indent=2).decode()))
    return 0 if session.everything_started else NEVER_STARTED


@contextmanager
def _dashboard(cluster: "Embedded", head: list[str]) -> Iterator[None]:
    """Serve the dashboard. The head shows the address that logs in the next browser."""
    cli_access, served = import_module("extender.cli.access"), import_module("extender.cli.dashboard").served
    listener = import_module("extender.web.sockets").listen("--listen", Address("127.0.0.1", 0))

    def renew(url: str) -> None:
        head[-1] = f"Pages: {url}"

    flags = cli_access.Flags(str(cluster.kubeconfig), None, None)
    with cli_access.open_access(flags) as access, served(access, listener, renew) as url:
        head.append(f"Pages: {url}")
        yield


@contextmanager
def orderly_end() -> Iterator[None]:
    """Treat the first terminating signal as Ctrl-C, and ignore further signals during the clean-up."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        for number in _END_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    handlers: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {
        number: signal.signal(number, interrupt) for number in _END_SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
