"""Commands for administrators who prepare an installation.

`muster certificates` makes the certificates for TLS between the scheduler and Muster. `muster migrate` prints
Muster's objects for another project's, as YAML for the user to read and apply.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from extender.api.keys import AUTHORITY, CERTIFICATE, KEY, MANAGED, NEVER_ADOPTED, QUEUE
from extender.api.setting_kinds import Kind, within
from extender.api.units import as_seconds
from extender.cli.access import NAME, Flags, access_flags, open_access
from extender.cli.output import CLIENT, SERVER, InvalidContent, Json, dry_run_flag, echo, parser_of, show_done

if TYPE_CHECKING:
    from extender.webhooks.certificates import Pair

_LONGEST = "87600h"
_LIFETIME_KIND = Kind(f"a duration from 1h to {_LONGEST}, such as 8760h", within(as_seconds, "1h", _LONGEST))


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A new folder; the folders muster and scheduler are created in it.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    default=["127.0.0.1", "localhost"],
    show_default=True,
    help="A host name or IP address that the scheduler calls; may be given several times.",
)
@click.option(
    "--lifetime",
    default=_LONGEST,
    show_default=True,
    callback=parser_of(_LIFETIME_KIND),
    help="The lifetime of the certificates. The scheduler reads its certificate only at its start.",
)
def certificates(out: Path, names: tuple[str, ...], lifetime: float) -> None:
    """Make TLS certificates for Muster and its scheduler.

    Each of the two folders has tls.crt, tls.key and ca.crt (docs/how-to/install.md). The CA's own key is
    deleted, so it can admit no other client; to renew, make both again.
    """
    from extender.webhooks.certificates import make_mutual

    if out.exists():
        raise click.UsageError(f"--out: invalid value '{out}', which exists: must be a new folder")
    server, client = make_mutual(names, lifetime, time.time())
    try:
        _write(out / "muster", server)
        _write(out / "scheduler", client)
    except OSError as fault:
        raise click.UsageError(f"--out: invalid value '{out}': {fault.strerror}") from fault
    click.echo(f"{out}/muster is for the Secret that Muster reads, {out}/scheduler for the scheduler's host.")


def _write(folder: Path, pair: "Pair") -> None:
    """Write a key pair to a folder. Only the owner may read the key."""
    folder.mkdir(parents=True, mode=0o700)
    for name, data in ((CERTIFICATE, pair.certificate), (AUTHORITY, pair.authority), (KEY, pair.key)):
        path = folder / name
        path.touch(mode=0o600 if name == KEY else 0o644)
        path.write_bytes(data)


@click.group()
def namespace() -> None:
    """Adopt namespaces: their pods need no schedulerName."""


@namespace.command()
@click.argument("names", type=NAME, metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--queue", type=NAME, metavar="NAME", help="The queue of pods, groups and jobs there that name none."
)
@dry_run_flag
@access_flags
def adopt(names: tuple[str, ...], queue: str | None, **flags: Any) -> None:
    """Give new pods without a scheduler of their own to Muster.

    Pods of DaemonSets, and with the annotation kube-muster.io/managed: "false", stay as they are.
    """
    if system := next((name for name in names if name in NEVER_ADOPTED), ""):
        raise click.ClickException(f"namespace {system!r}: its pods always stay with the cluster's scheduler")
    metadata: Json = {"labels": {MANAGED: "true"}}
    if queue:
        metadata["annotations"] = {QUEUE: queue}
    _patch_namespaces(names, metadata, "adopted", queue, **flags)


@namespace.command()
@click.argument("names", type=NAME, metavar="NAME...", nargs=-1, required=True)
@dry_run_flag
@access_flags
def release(names: tuple[str, ...], **flags: Any) -> None:
    """Leave new pods to the cluster's scheduler again.

    The queue of a namespace stays.
    """
    _patch_namespaces(names, {"labels": {MANAGED: None}}, "released", **flags)


def _patch_namespaces(
    names: tuple[str, ...], metadata: Json, done: str, queue: str | None = None, *, dry_run: str, **flags: Any
) -> None:
    with open_access(Flags(**flags)) as access:
        from extender.cli.lookup import fetch
        from extender.kube.resources import NAMESPACES, QUEUES

        if queue:
            fetch(access.reader, QUEUES, "", queue, Json)
        for name in names:
            fetch(access.reader, NAMESPACES, "", name, Json)
            if dry_run != CLIENT:
                access.editor.patch(NAMESPACES, "", name, {"metadata": metadata}, dry_run=dry_run == SERVER)
            show_done(name, done, dry_run, "namespace")


_PLURALS = (
    *("clusterqueues", "cohorts", "resourceflavors", "localqueues", "workloadpriorityclasses"),
    *("admissionchecks", "provisioningrequestconfigs", "topologies"),
)


@click.group()
def migrate() -> None:
    """Convert objects of other projects to Muster's."""


@migrate.command()
@click.option(
    "-f", "--filename", "files", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="A file or folder of YAML or JSON, or - for the standard input. [default: those of the cluster]",
)  # fmt: skip
@access_flags
def kueue(files: tuple[Path, ...], **flags: Any) -> None:
    """Convert Kueue's queues and priority classes, and jobs of files.

    Fields without a counterpart become comments. Nothing is changed: kubectl create -f - takes the output.
    """
    from extender.api.workloads.children import SHAPE_ERRORS
    from extender.cli.kueue import as_yaml, first_malformed, migrate_objects
    from extender.files.reading import documents

    faults: list[str] = []
    objects = [document.object for path in files for document in documents(path, faults)]
    if faults:
        raise InvalidContent("\n".join(faults))
    objects = objects if files else list(_in_cluster(Flags(**flags)))
    try:
        results = list(migrate_objects(objects))
    except SHAPE_ERRORS as fault:
        raise InvalidContent(first_malformed(objects)) from fault
    if not results:
        raise click.ClickException("no objects of Kueue with a counterpart in Muster")
    for comments, obj in results:
        echo("---" if obj else "")
        for comment in comments:
            echo(f"# {comment}")
        if obj:
            echo(as_yaml(obj))


def _in_cluster(flags: Flags) -> Iterator[Json]:
    """Yield Kueue's objects in the cluster, in the newest version that the cluster serves."""
    from extender.kube.errors import NotFound
    from extender.kube.resources import KUEUE_LOCAL_QUEUES, Resource

    with open_access(flags) as access:
        roots = [resource.root for resource in KUEUE_LOCAL_QUEUES]
        for plural in _PLURALS:
            for root in roots:
                try:
                    namespace = flags.namespace or "" if plural == "localqueues" else ""
                    yield from access.reader.list(Resource(root, plural), namespace, dict)
                except NotFound:
                    continue
                break
