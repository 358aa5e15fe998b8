"""The smallest program with all ports that holds bind calls, for the tests of the real server.

Its webhook port echoes requests to /echo, with a self-signed certificate. Run as `python -m
tests.web.program`, with `--tls FOLDER` for the verbs over TLS. Its debug port can wait: /debug/pods/held/N
answers once N calls are held, and /debug/pods/gone/NAME once something can be read on the socket of the
caller that binds NAME.
"""

import sys
import time
from select import select
from threading import Condition, Event, Thread

from extender.api.configuration import Address
from extender.api.protocol import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    PreemptionArgs,
    PreemptionResult,
)
from extender.host.mutual_tls import MutualTls
from extender.telemetry import logs
from extender.web.app import create_app
from extender.web.caller import Caller
from extender.web.debug import create_debug_app
from extender.web.health import create_health_app
from extender.web.identity import Identity
from extender.web.listen import listen
from extender.web.server import serve
from extender.web.side import SideServer
from extender.web.webhooks import WebhookServer
from extender.webhooks.certificates import make_pair

WINDOW = 100
STOPPED = "Muster stops"


class Holding:
    """Holds every bind call until the end, or until its caller hangs up."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._held: dict[str, Caller] = {}
        self._stopping = False

    def filter(self, args: ExtenderArgs) -> FilterResult:
        return FilterResult(node_names=args.node_names)

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        return []

    def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        return PreemptionResult({})

    def bind(self, args: BindingArgs, caller: Caller) -> BindingResult:
        with self._changed:
            self._held[args.pod_name] = caller
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping)
        return BindingResult(STOPPED)

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def look(self, namespace: str, name: str) -> object:
        with self._changed:
            if namespace == "held":
                return self._changed.wait_for(lambda: len(self._held) == int(name))
            caller = self._held[name]
        before = caller.gone()
        select([caller], [], [])
        return {"before": before, "after": caller.gone()}


class Echo:
    paths = frozenset({"/echo"})

    def answer(self, path: str, body: bytes) -> bytes:
        return body


def identity() -> Identity:
    made, pair = Identity(), make_pair(["127.0.0.1"], 3600, time.time())
    made.use(pair.certificate, pair.key)
    return made


def main() -> None:
    logs.set_up("json")
    ports = [listen("--listen", Address("127.0.0.1", 0)) for _ in range(4)]
    print(*(port.getsockname()[1] for port in ports), flush=True)  # noqa: T201
    verbs, debug, health, webhooks = ports
    holding = Holding()

    tls = MutualTls(sys.argv[2] if "--tls" in sys.argv else "")

    def start() -> None:
        tls.start()
        if "--broken" in sys.argv:
            Thread(target=Event().wait).start()  # not a daemon: it would keep the process
            raise RuntimeError("cannot start")
        SideServer("debug", debug, create_debug_app({"pod": holding.look}))
        SideServer("health", health, create_health_app({}, {}))
        WebhookServer(webhooks, Echo(), identity())

    serve(
        verbs,
        app=lambda: create_app(holding),
        on_start=start,
        on_stop=holding.stop,
        window=WINDOW,
        secure=tls.context if tls.wanted else None,
    )


if __name__ == "__main__":
    main()
