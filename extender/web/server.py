"""Server of the scheduler's calls, in one worker process of gunicorn, whose memory has all gangs.

gunicorn forks, watches the worker and passes on signals. Connections are handled by port.py, because
gunicorn's parser, with a thread for each call, took most of the processor time of a call.

Shutdown: gunicorn's own worker would cut held calls. Therefore every signal that ends the process first
triggers `on_stop`, which has to answer these calls. `on_stop` runs in a thread that was started beforehand,
because a signal handler can interrupt the main thread anywhere and must not take a lock. Then the process
exits, and does not wait for threads that hang on a slow client.

Calls are four verbs, with raw bytes as input and output. kube-scheduler reads only answers with status 200. A
verb that fails internally therefore answers 200, with the Error field of the protocol. The message is always
the same: a changed message makes the scheduler patch the pod and try it again. Calls that no scheduler makes
get the HTTP status of their error.
"""

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import FrameType
from typing import Any, NamedTuple, cast

import msgspec
from aiohttp import web
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound

from extender.api import protocol
from extender.api.setting_kinds import Address
from extender.ports.connection import FAILURE_TEXT, Caller, CallerConnection, encode_answer
from extender.ports.connections import TIMEOUTS, ConnectionLimits, Timeouts
from extender.ports.light_connection import ShortRequest
from extender.ports.port import Pulse, ReadTlsContext, ServedPort
from extender.telemetry import metrics
from extender.telemetry.logs import bound_context, logger
from extender.verbs.verbs import SchedulerVerbs
from extender.web.sockets import BACKLOG

MAX_BODY_BYTES = 16 * 1024 * 1024  # enforced by the port
SPARE_CONNECTIONS = 64  # for filter, prioritize and preempt while bind calls of the whole window are held
_JSON_HEADERS = {"Content-Type": "application/json", "Server": "muster"}  # otherwise aiohttp adds its name
GRACE_SECONDS = 4  # seconds to answer held calls, so that the process exits within five seconds

# Nesting that is too deep for the decoder's stack also counts as malformed.
MALFORMED_ERRORS = (protocol.MalformedRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError)

log = logger(__name__)
Hook = Callable[[], None]
Args = protocol.ExtenderArgs | protocol.BindingArgs | protocol.PreemptionArgs


class Verb(NamedTuple):
    """Verb of the scheduler's calls."""

    name: str
    args_type: type[Args]
    answer: Callable[[Any, Caller], Awaitable[object]]
    failure_answer: object  # answer if `answer` raises an unexpected error


class App:
    """Application of the port for the verbs, under /v1/. A call is cancelled when its caller hangs up."""

    def __init__(self, verbs: SchedulerVerbs) -> None:
        self._verb_table = {f"/v1/{verb.name}": verb for verb in _verb_table(verbs)}

    async def __call__(self, method: str, path: str, body: bytes, caller: Caller) -> bytes:
        """Return the body of the answer in JSON.

        Raises:
            HTTPException: The path or method is unknown, or the body is malformed.
        """
        verb = self._verb_table.get(path) or self._verb_table.get(path.partition("?")[0])
        if verb is None:
            raise NotFound(f"Allowed are {', '.join(self._verb_table)}")
        if method != "POST":
            raise MethodNotAllowed(["POST"])
        with metrics.count_call(verb.name) as call:
            try:
                args = protocol.decode(body, verb.args_type)
                with bound_context(pod=_pod_of(args)):
                    return await _encoded_answer(verb, args, caller, call)
            except MALFORMED_ERRORS as fault:
                call.outcome, call.reason = "malformed", ""
                raise BadRequest(str(fault)) from fault


def _pod_of(args: Args) -> str:
    if isinstance(args, protocol.BindingArgs):
        return f"{args.pod_namespace}/{args.pod_name}"
    return f"{args.pod.metadata.namespace}/{args.pod.metadata.name}"


async def _encoded_answer(verb: Verb, args: Args, caller: Caller, call: metrics.Call) -> bytes:
    """Return the answer of a verb, also if the verb or the encoding raises an unexpected error.

    Raises:
        MalformedRequest: The verb reads the request first, and cannot read it.
    """
    try:
        return protocol.encode(await verb.answer(args, caller))
    except asyncio.CancelledError:
        metrics.record_refusal()
        raise
    except protocol.MalformedRequest:
        raise
    except Exception:
        call.outcome = "failed"
        log.exception("a verb failed", verb=verb.name)
        return protocol.encode(verb.failure_answer)


def _verb_table(verbs: SchedulerVerbs) -> tuple[Verb, ...]:
    async def filter_nodes(args: protocol.ExtenderArgs, _: Caller) -> protocol.FilterResult:
        return verbs.filter(args)

    async def prioritize(args: protocol.ExtenderArgs, _: Caller) -> list[protocol.HostPriority]:
        return verbs.prioritize(args)

    no_preemptions = protocol.PreemptionResult({})
    return (
        Verb("filter", protocol.ExtenderArgs, filter_nodes, protocol.FilterResult(error=FAILURE_TEXT)),
        Verb("prioritize", protocol.ExtenderArgs, prioritize, []),
        Verb("bind", protocol.BindingArgs, verbs.bind, protocol.BindingResult(error=FAILURE_TEXT)),
        Verb("preempt", protocol.PreemptionArgs, lambda args, _: verbs.preempt(args), no_preemptions),
    )


def serve(
    listener: socket.socket,
    *,
    app: Callable[[], App],
    on_start: Hook,
    on_stop: Hook,
    window: int,
    pulse: Pulse,
    secure: ReadTlsContext | None = None,
    timeouts: Timeouts = TIMEOUTS,
) -> None:
    """Serve on `listener` until a signal; then this process exits.

    `app` and `on_start` are called in the worker process before the first call is served. `on_stop` is called
    once, when a signal to stop arrives, and has to answer every held call. With `secure`, the port uses TLS.
    """
    # Each held call has a connection. The usual soft limit of 1,024 is too low for a window of 1,000.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    address = Address(*listener.getsockname()[:2])  # the worker has a copy of the listener
    max_unread = 4 * MAX_BODY_BYTES
    limits = ConnectionLimits(2 * (window + SPARE_CONNECTIONS), MAX_BODY_BYTES, max_unread, timeouts)
    shutdown = _Shutdown(on_stop)

    def post_worker_init(worker: LoopWorker) -> None:
        worker.open_port = partial(ServedPort, "verbs", limits=limits, secure=secure, pulse=pulse)
        sys.setswitchinterval(0.0005)  # a busy thread then delays a filter call by 1 ms instead of 5 ms
        shutdown.prepare(worker)
        on_start()
        log.info("serving the scheduler", listen=str(address))

    _Server(app, _settings(listener, shutdown, post_worker_init)).run()


class LoopWorker(Worker):
    """Worker of gunicorn that serves one port. `open_port` is set before the worker starts."""

    open_port: Callable[..., ServedPort]

    def init_process(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop_event = asyncio.Event()
        super().init_process()

    def run(self) -> None:
        """Serve until a signal to stop, and then until all answers are sent or the grace period ends."""
        self._loop.run_until_complete(self._serve())

    def end(self) -> None:
        """Stop the loop. Safe to call in any thread."""
        self._loop.call_soon_threadsafe(self._stop_event.set)

    async def _serve(self) -> None:
        """Serve the port in the event loop until a stop is requested."""
        app = cast(App, self.wsgi)

        async def answer(request: web.BaseRequest, connection: CallerConnection) -> web.Response:
            body = await connection.body(request)
            connection.serve()
            answer_body = await app(request.method, request.raw_path, body, connection.caller)
            return web.Response(body=answer_body, headers=_JSON_HEADERS)

        async def answer_short(request: ShortRequest, caller: Caller) -> bytes:
            body = await app(request.method, request.target, request.body, caller)
            return encode_answer(200, "OK", _JSON_HEADERS.items(), body)

        [wrapper] = self.sockets  # wrapper class of gunicorn
        listener: socket.socket = cast(Any, wrapper).sock
        port = self.open_port(
            listener=listener, answer=answer, find_handler=lambda request: partial(answer_short, request)
        )
        if self.alive:
            await self._stop_event.wait()
        await port.stop(self.cfg.graceful_timeout)


class _Server(BaseApplication):
    def __init__(self, app: Callable[[], App], settings: dict[str, Any]) -> None:
        self._app, self._settings = app, settings
        super().__init__(prog="muster")

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:  # gunicorn passes the result to the worker as a WSGI application
        return self._app()


def _settings(
    listener: socket.socket, shutdown: "_Shutdown", post_worker_init: Callable[["LoopWorker"], None]
) -> dict[str, Any]:
    """Return gunicorn's settings."""
    return {
        "bind": f"fd://{listener.detach()}",  # already open, as gunicorn would retry for 5 s, then exit 1
        "workers": 1,  # despite $WEB_CONCURRENCY: a second process would split gangs
        "worker_class": LoopWorker,
        "backlog": BACKLOG,
        "timeout": 0,  # /livez detects a stuck worker; gunicorn's heartbeat cannot
        "graceful_timeout": GRACE_SECONDS,
        "max_requests": 0,  # no restarts, which would reset connections
        "control_socket_disable": True,  # as it fails on a read-only root
        "worker_tmp_dir": "/dev/shm" if os.path.isdir("/dev/shm") else None,
        "accesslog": None,
        "logger_class": _Log,
        "loglevel": "warning",
        "proc_name": "muster",
        "when_ready": _end_gracefully_on_all_signals,
        "post_worker_init": post_worker_init,
        "worker_exit": lambda _arbiter, worker: shutdown.finish(worker),
    }


class _Log(Logger):
    """Logger that sends gunicorn's lines to the same handlers as all other lines."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class _Shutdown:
    """Shutdown of the worker, which runs `on_stop` once, after the first signal to stop."""

    def __init__(self, on_stop: Hook) -> None:
        self._on_stop = on_stop
        self._signals: SimpleQueue[None] = SimpleQueue()  # safe in a signal handler, unlike an Event
        self._done_event = Event()

    def prepare(self, worker: LoopWorker) -> None:
        """Start the thread that runs `on_stop`, and handle all signals to stop."""
        Thread(target=self._run, args=[worker], name="ending", daemon=True).start()

        def end(number: int, frame: FrameType | None) -> None:
            worker.handle_exit(number, frame)
            self._signals.put(None)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, end)
            signal.siginterrupt(number, False)

    def finish(self, worker: LoopWorker) -> None:
        """Exit the process. If the worker has started, first wait for `on_stop`, even if no signal came."""
        if worker.booted:
            self._signals.put(None)
            self._done_event.wait(GRACE_SECONDS)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if worker.booted else Arbiter.WORKER_BOOT_ERROR)

    def _run(self, worker: LoopWorker) -> None:
        """Wait for a signal, or for the end of the parent process, and then run `on_stop`."""
        while os.getppid() == worker.ppid:
            with suppress(Empty):
                self._signals.get(timeout=1)
                break
        worker.end()
        try:
            self._on_stop()
        except Exception:
            log.exception("shutting down failed in part")
        finally:
            self._done_event.set()


def _end_gracefully_on_all_signals(arbiter: Arbiter) -> None:
    """Let the parent process handle Ctrl-C and a closed terminal like SIGTERM.

    By default, these signals make gunicorn cut all calls, or start a second worker. Signals that change the
    number of workers are ignored.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, lambda _number, frame: arbiter.signal(signal.SIGTERM, frame))
    for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
