"""What a running Muster answers on its debug port."""

import http.client
import urllib.error
import urllib.request

import click

from extender.api.configuration import Configuration
from extender.api.setting_kinds import ADDRESS, Address
from extender.cli.output import checked

_PATIENCE = 60.0  # seconds; what takes longest, a dump, is made in a few

debug_address_flag = click.option(
    "--debug-address",
    default=str(Configuration().debug_listen),
    show_default=True,
    metavar="HOST:PORT",
    callback=checked(ADDRESS),
    help="The debug port of the running Muster.",
)


def asked(address: Address, path: str, most: int) -> bytes:
    """The answer, of at most so many bytes. Raises ClickException."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://{address}/debug/{path}", timeout=_PATIENCE) as answer:
            found: bytes = answer.read(most)
            return found
    except urllib.error.HTTPError as fault:
        with fault:
            said = fault.read(4096).decode(errors="replace").strip()
        raise click.ClickException(f"the debug port {address} answered {fault.code}: {said}") from fault
    except (OSError, http.client.HTTPException) as fault:
        why = getattr(fault, "reason", fault)
        help_ = "kubectl -n kube-muster port-forward deployment/muster 8283 makes it reachable"
        raise click.ClickException(f"no debug port at {address}: {why}\n{help_}") from fault
