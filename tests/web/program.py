"""Small program with all ports, which holds bind calls, to test the real server.

Its webhook port echoes requests to /echo, with a self-signed certificate. `--tls FOLDER`: the verbs use TLS.
`--impatient`: the deadlines of connections are short. Its debug port can wait: /debug/pods/held/N
answers once N calls are held, and /debug/pods/left/NAME once the caller that binds NAME has hung up. A filter
call for the pod `stuck` blocks the event loop until /debug/pods/go/on.
"""

import asyncio
import sys
import time
from threading import Condition, Event, Thread

from extender.api.protocol import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    PreemptionArgs,
    PreemptionResult,
)
from extender.api.setting_kinds import Address
from extender.host.certificate_files import MutualTls
from extender.ports.connection import Caller
from extender.ports.connections import TIMEOUTS, Timeouts
from extender.ports.port import Pulse
from extender.telemetry import logs
from extender.verbs.barrier import Signal
from extender.verbs.verbs import SchedulerVerbs
from extender.web.debug import create_debug_app
from extender.web.server import App, serve
from extender.web.side_ports import LIMITS, REVIEW_LIMITS, HealthApp, SideServer, WebhookServer, pages
from extender.web.sockets import Identity, listen
from extender.webhooks.certificates import make_pair
from extender.webhooks.reviews import Path, Reviewer, ReviewOutcome

WINDOW = 100
LONG = 1000.0  # seconds
STOPPING_REASON = "Muster stops"
IMPATIENT = Timeouts(handshake=0.3, head=0.2, body=0.4, answer=1.0, discard=0.1)


class Holding(SchedulerVerbs):
    """Verbs that hold every bind call until the end, or until its caller hangs up."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._held: dict[str, Signal] = {}
        self._callers: dict[str, Caller] = {}
        self._hung_up: set[str] = set()
        self._resumed = Event()

    def filter(self, args: ExtenderArgs) -> FilterResult:
        if args.pod.metadata.name == "stuck":
            self._resumed.wait(LONG)
        return FilterResult(node_names=args.node_names)

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        return []

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        return PreemptionResult({})

    async def bind(self, args: BindingArgs, caller: Caller) -> BindingResult:
        end = Signal()
        with self._changed:
            self._held[args.pod_name] = end
            self._callers[args.pod_name] = caller
            self._hung_up.discard(args.pod_name)
            self._changed.notify_all()
        try:
            await end.wait(LONG)
        except asyncio.CancelledError:
            with self._changed:
                del self._held[args.pod_name]
                self._hung_up.add(args.pod_name)
                self._changed.notify_all()
            raise
        return BindingResult(STOPPING_REASON)

    def stop(self) -> None:
        for end in self._held.values():
            end.set()

    def debug_page(self, namespace: str, name: str) -> object:
        if namespace == "go":
            self._resumed.set()
            return name
        with self._changed:
            if namespace == "held":
                return self._changed.wait_for(lambda: len(self._held) == int(name))
            caller = self._callers[name]
            if namespace == "left":
                self._changed.wait_for(lambda: name in self._hung_up)
        return {"gone": caller.has_hung_up(), "left": name in self._hung_up}


class Echo(Reviewer):
    def __init__(self) -> None:
        super().__init__({"/echo": Path(lambda request: ReviewOutcome(), ())}, lambda: True)

    def answer(self, path: str, body: bytes) -> bytes:
        return body


def identity() -> Identity:
    new_identity, pair = Identity("webhooks"), make_pair(["127.0.0.1"], 3600, time.time())
    new_identity.use(pair.certificate, pair.key)
    return new_identity


def main() -> None:
    logs.set_up("json")
    ports = [listen("--listen", Address("127.0.0.1", 0)) for _ in range(4)]
    print(*(port.getsockname()[1] for port in ports), flush=True)  # noqa: T201
    verbs, debug, health, webhooks = ports
    impatient = "--impatient" in sys.argv
    timeouts = IMPATIENT if impatient else TIMEOUTS
    holding, pulse = Holding(), Pulse(timeout=0.5 if impatient else 3.0)
    tls = MutualTls(sys.argv[sys.argv.index("--tls") + 1] if "--tls" in sys.argv else "")

    def start() -> None:
        tls.start()
        if "--broken" in sys.argv:
            Thread(target=Event().wait).start()  # no daemon thread, so it would keep the process alive
            raise RuntimeError("cannot start")
        limits = LIMITS._replace(timeouts=timeouts)
        SideServer("debug", debug, pages(create_debug_app({"pod": holding.debug_page})), limits)
        SideServer("health", health, HealthApp({"verbs": pulse.fault}, {}), limits)
        WebhookServer(webhooks, Echo(), identity(), REVIEW_LIMITS._replace(timeouts=timeouts))

    serve(
        verbs,
        app=lambda: App(holding),
        on_start=start,
        on_stop=holding.stop,
        window=WINDOW,
        pulse=pulse,
        secure=tls.context if tls.is_enabled else None,
        timeouts=timeouts,
    )


if __name__ == "__main__":
    main()
