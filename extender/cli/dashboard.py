"""`muster dashboard`: the queues, groups and nodes that its user may see, in a browser on the same machine.

The dashboard reads objects of the API server only, so it needs no installation except the CRDs.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from extender.api.setting_kinds import ADDRESS, Address
from extender.cli.access import ClusterAccess, Flags, access_flags, open_access
from extender.cli.kinds import all_kinds, config_option
from extender.cli.output import parser_of

if TYPE_CHECKING:
    from socket import socket

    from extender.dashboard.source import ClusterName

_THREAD_COUNT = 8  # maximum of pages that are made at the same time


@click.command()
@click.option(
    "--listen",
    "address",
    callback=parser_of(ADDRESS),
    default="127.0.0.1:8285",
    show_default=True,
    metavar="ADDRESS",
    help="A loopback address; port 0 is any free one.",
)
@click.option("--open", "opens_browser", is_flag=True, help="Open the page in the browser.")
@access_flags
def dashboard(address: Address, opens_browser: bool, **flags: Any) -> None:
    """Show queues, groups and nodes in a browser.

    The dashboard is served on this machine only, until Ctrl-C. It reads with the rights of your kubeconfig:
    all namespaces if you may list their podgroups, else that of -n. The printed address lets one browser in;
    then a new address is printed.
    """
    from extender.api.configuration import InvalidConfiguration
    from extender.dashboard.source import ClusterName
    from extender.kube.endpoint import cluster_name
    from extender.ports.connection import is_loopback
    from extender.web.sockets import listen

    if not is_loopback(address.host):
        rule = "must be a loopback address, since its users have your rights"
        raise click.UsageError(f"--listen: invalid value {str(address)!r}: {rule}")
    try:
        listener = listen("--listen", address)
    except InvalidConfiguration as fault:
        raise click.UsageError(str(fault)) from fault

    def print_url(url: str) -> None:
        click.echo(f"Open {url}")

    name = ClusterName(*cluster_name(flags["kubeconfig"], flags["context"]))
    context = open_access(Flags(**flags))
    with suppress(KeyboardInterrupt), context as access, served(access, listener, print_url, name) as url:
        click.echo("It lets one browser in. Ctrl-C ends it.", err=True)
        print_url(url)
        if opens_browser:
            click.launch(url)
        threading.Event().wait()


dashboard.params.append(config_option())


@contextmanager
def served(
    access: ClusterAccess,
    listener: "socket",
    announce: Callable[[str], None],
    cluster: "ClusterName | None" = None,
) -> Iterator[str]:
    """Serve the dashboard, and yield the address that logs in one browser.

    `announce` is called with a new address after each login.
    """
    from extender.cli.live import LiveCluster
    from extender.cli.overview import ObservedSource
    from extender.dashboard.app import create_dashboard_app
    from extender.dashboard.local_login import LocalLogin
    from extender.dashboard.source import UNNAMED
    from extender.dashboard.what_if_page import WhatIfBase, WhatIfTrials
    from extender.telemetry.logs import set_up
    from extender.web.side_ports import SideServer, pages

    def read_now() -> WhatIfBase:
        live = LiveCluster(access)
        return WhatIfBase(live.ledger.snapshot(), live.notes)

    set_up("text", "error")
    base = f"http://{Address(*listener.getsockname()[:2])}"
    source = ObservedSource(access)
    login = LocalLogin(access.connection, lambda path: announce(f"{base}{path}"))
    trials = WhatIfTrials(read_now)
    app = create_dashboard_app(
        source, login.identify, login.login, trials=trials, cluster=cluster or UNNAMED, kinds=all_kinds()
    )
    server = SideServer("dashboard", listener, pages(app), thread_count=_THREAD_COUNT, allows_web_pages=True)
    try:
        yield f"{base}{login.path}"
    finally:
        server.stop()
        source.stop()
