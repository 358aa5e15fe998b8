"""`muster certificates`: what the scheduler and Muster show each other when they speak TLS."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from extender.api.durations import as_seconds
from extender.api.setting_kinds import Kind, within
from extender.cli.output import checked

if TYPE_CHECKING:
    from extender.webhooks.certificates import Pair

_LONGEST = "87600h"
_LIFETIME = Kind(f"a duration from 1h to {_LONGEST}, such as 8760h", within(as_seconds, "1h", _LONGEST))


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
    callback=checked(_LIFETIME),
    help="How long the certificates are valid. The scheduler reads its own only when it starts.",
)
def certificates(out: Path, names: tuple[str, ...], lifetime: float) -> None:
    """Make certificates for Muster and the scheduler, which know each other by them: docs/install.md.

    Each of the two folders has tls.crt, tls.key and ca.crt. The CA's own key is thrown away, so no other
    client can be let in with it; to renew, make both anew.
    """
    from extender.webhooks.certificates import make_mutual

    if out.exists():
        raise click.UsageError(f"--out: got '{out}', which is there already; allowed is a new folder")
    server, client = make_mutual(names, lifetime, time.time())
    try:
        _write(out / "muster", server)
        _write(out / "scheduler", client)
    except OSError as fault:
        raise click.UsageError(f"--out: got '{out}'; {fault.strerror}") from fault
    click.echo(f"{out}/muster is for the Secret that Muster reads, {out}/scheduler for the scheduler's host.")


def _write(folder: Path, pair: "Pair") -> None:
    """The key is for its owner's eyes."""
    from extender.webhooks.certificates import AUTHORITY, CERTIFICATE, KEY

    folder.mkdir(parents=True, mode=0o700)
    for name, data in ((CERTIFICATE, pair.certificate), (AUTHORITY, pair.authority), (KEY, pair.key)):
        path = folder / name
        path.touch(mode=0o600 if name == KEY else 0o644)
        path.write_bytes(data)
