"""Port of the scheduler proxy: an event loop in a thread, on a listening socket.

The socket is opened before the worker process is forked, and the parent process keeps the socket open. While
a worker restarts, new connections therefore wait in the backlog instead of being refused.

A request is refused, passed on to the API server, or answered by a handler. In each case, the client sees
what it would see without the proxy: an answer of the API server, 429 if the API server cannot be reached, or
the end of the connection if an answer ends in the middle.
"""

import asyncio
import itertools
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from http import HTTPStatus
from threading import Thread
from typing import NamedTuple

import msgspec
from aiohttp import hdrs, web
from werkzeug.exceptions import HTTPException, RequestTimeout

from extender.api.setting_kinds import Address
from extender.domain.model.versioned_pod_watch import Appearances
from extender.kube.endpoint import ApiEndpoint
from extender.ports.connection import Caller, CallerConnection
from extender.ports.connections import NEVER, ConnectionLimits, Timeouts
from extender.ports.light_connection import ShortRequest
from extender.ports.port import ServedPort
from extender.proxy import target as targets
from extender.proxy import upstream as forwarding
from extender.proxy.target import (
    ApiTarget,
    MalformedTarget,
    RequestClass,
    encoded_refusal,
    is_allowed,
    read_resource,
    read_target,
    refusal,
)
from extender.proxy.upstream import CutOff, TooManyEvents, Unanswered, Upstream, UpstreamGone
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)
_request_count_of = cache(metrics.view_requests.labels)  # `labels` itself takes a lock on every call
_MAX_LOGGED_KINDS = 100
_BODY_TIMEOUT = 20.0  # seconds to receive a whole body

# Handlers get the body as bytes, may raise the errors of `pass_on`, and are cancelled if the client hangs up.
Handler = Callable[[web.BaseRequest, ApiTarget, bytes], Awaitable[web.StreamResponse]]


class Handlers(NamedTuple):
    """Handlers of requests that the proxy answers itself. None means that the request is passed on."""

    pods: Handler | None = None  # lists and watches of pods, in all namespaces or in one namespace
    pod_status: Handler | None = None  # PATCH of a pod's status


class OpenWatches:
    """Open watches through the proxy, for the debug page and the metrics."""

    def __init__(self) -> None:
        self._watches: dict[int, tuple[str, str, float]] = {}  # path, User-Agent and start of each watch
        self._serials = itertools.count()

    @contextmanager
    def record(self, path: str, client: str) -> Iterator[None]:
        """Record an open watch for as long as the context lasts."""
        number = next(self._serials)
        self._watches[number] = path, client, time.monotonic()
        metrics.view_streams.set(len(self._watches))
        try:
            yield
        finally:
            del self._watches[number]
            metrics.view_streams.set(len(self._watches))

    def debug_state(self) -> list[dict[str, object]]:
        """Return the state for the debug page. Safe to call in any thread."""
        now = time.monotonic()
        return [
            {"path": path, "client": client, "seconds": round(now - since, 1)}
            for path, client, since in sorted(self._watches.copy().values())
        ]


class Relay:
    def __init__(self, upstream: Upstream, secret: str, handlers: Handlers) -> None:
        self._upstream = upstream
        self._secret = secret
        self._handlers = handlers
        self.watches = OpenWatches()
        self._logged_refusals: set[tuple[str, str]] = set()  # methods and resources

    async def __call__(self, request: web.BaseRequest, connection: CallerConnection) -> web.StreamResponse:
        outcome = "left"
        try:
            response, outcome = await self._answer(request, connection)
            return response
        except Exception as fault:
            outcome, answer = _failure(request.method, fault)
            return answer if answer and not request.writer.output_size else _hang_up(request)
        finally:
            _request_count_of(outcome).inc()

    def event_handler(self, request: ShortRequest) -> Callable[[Caller], Awaitable[bytes]] | None:
        """Return the handler of a short Event, which the scheduler posts for each pod.

        None means that `__call__` answers the request.
        """
        with suppress(MalformedTarget):
            target = read_target(request.method, request.target, self._secret)
            if not target or target.request_class is not RequestClass.REPORTING:
                return None
            if is_allowed(target.method, target.path):
                return partial(self._send_event, target, request)
        return None

    async def _send_event(self, target: ApiTarget, request: ShortRequest, _: Caller) -> bytes:
        """Return the answer to a short Event, in bytes; empty to close the connection."""
        outcome = "left"
        try:
            sent_answer = await self._upstream.send_event(target, request)
            outcome = "passed"
            return sent_answer
        except Exception as fault:
            outcome, answer = _failure(request.method, fault)
            return encoded_refusal(answer) if answer else b""
        finally:
            _request_count_of(outcome).inc()

    async def _answer(
        self, request: web.BaseRequest, connection: CallerConnection
    ) -> tuple[web.StreamResponse, str]:
        """Return the answer to a request, and its outcome for the metrics."""
        if request.method == "CONNECT":
            return _closing(refusal(HTTPStatus.FORBIDDEN, "there are no tunnels here")), "refused"
        target = read_target(request.method, request.raw_path, self._secret)
        if target is None:
            return refusal(HTTPStatus.NOT_FOUND, "not found"), "refused"
        if "Upgrade" in request.headers or not is_allowed(target.method, target.path):
            resource = read_resource(target.path)
            kind = target.method, resource.name if resource else target.path  # logged once
            if kind not in self._logged_refusals and len(self._logged_refusals) < _MAX_LOGGED_KINDS:
                self._logged_refusals.add(kind)
                log.warning("refused a request to the proxy", method=target.method, path=target.path)
            request_text = f"{target.method} {target.path}"
            message = f"the scheduler proxy refuses {request_text}: a scheduler does not need it"
            answer = refusal(HTTPStatus.FORBIDDEN, message)
            return (_closing(answer) if "Upgrade" in request.headers else answer), "refused"
        body = await _read_body(request, connection)
        if not target.is_watch:
            return await self._handle(request, target, body), "passed"
        with self.watches.record(target.path, request.headers.get("User-Agent", "")):
            return await self._handle(request, target, body), "passed"

    async def _handle(self, request: web.BaseRequest, target: ApiTarget, body: bytes) -> web.StreamResponse:
        """Answer an allowed request by its handler, or pass it on to the API server."""
        handler = None
        resource = read_resource(target.path) if "/pods" in target.path else None
        if resource and not resource.group:
            if resource.name == "pods" and not resource.object and target.method == "GET":
                handler = self._handlers.pods
            elif resource.name == "pods/status" and target.method == "PATCH":
                handler = self._handlers.pod_status
        if handler is None:
            return await forwarding.pass_on(self._upstream, request, target, body)
        return await handler(request, target, body)


async def _read_body(request: web.BaseRequest, connection: CallerConnection) -> bytes:
    """Return the whole body of a request.

    Raises:
        HTTPException: The body is too large, late or malformed.
    """
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            body = await connection.body(request)
    except TimeoutError:
        raise RequestTimeout(f"The body did not come within {_BODY_TIMEOUT:.0f} s") from None
    connection.serve()
    return body


def _failure(method: str, fault: Exception) -> tuple[str, web.Response | None]:
    """Return the outcome of a failed request, and the answer to it.

    None instead of an answer means that the connection is closed.
    """
    match fault:
        case MalformedTarget():
            return "refused", refusal(HTTPStatus.BAD_REQUEST, str(fault))
        case HTTPException():  # an error in the body
            return "refused", _closing(refusal(HTTPStatus(fault.code or 400), fault.description or ""))
        case UpstreamGone():
            return "gone", targets.unreachable_response(str(fault))
        case TooManyEvents():
            return "shed", targets.too_many_response(fault.may_repeat)
        case CutOff() | Unanswered():
            log.info("a response of the API server was cut off", method=method, error=str(fault))
            return "cut", None
        case ConnectionError():
            return "left", None
        case _:
            log.exception("a request to the scheduler proxy failed", method=method)
            message = "Muster failed to answer; its log says why"
            return "failed", refusal(HTTPStatus.INTERNAL_SERVER_ERROR, message)


def _closing(response: web.Response) -> web.Response:
    """Let the connection close after this response, since the rest of the request is not read."""
    response.force_close()
    return response


def _hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """Close the connection without a complete answer."""
    if request.transport:
        request.transport.abort()
    return web.Response()


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    reason: str = "Unschedulable"
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []
    nominatedNodeName: str | msgspec.UnsetType | None = msgspec.UNSET


class _Patch(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_read_patch = msgspec.json.Decoder(_Patch).decode


class StatusPatches:
    """Handler of the scheduler's status patches.

    Muster answers a patch that ends an attempt to schedule a member pod. Muster reads the message of the
    patch, and writes the condition PodScheduled itself. All other patches go to the API server. The scheduler
    does not use the body of the answer (PatchPodStatus in pkg/scheduler/util/utils.go).
    """

    def __init__(self, upstream: Upstream, appearances: Appearances) -> None:
        self._upstream, self._appearances = upstream, appearances

    async def __call__(self, request: web.BaseRequest, target: ApiTarget, body: bytes) -> web.StreamResponse:
        """Answer a request; raise the errors of `pass_on`."""
        message = _attempt_message(body)
        if message is not None:
            namespace, _, name = target.path.split("/")[4:7]  # /api/v1/namespaces/NAMESPACE/pods/NAME/status
            if uid := self._appearances.record_status(namespace, name, message):
                pod = {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "metadata": {"name": name, "namespace": namespace, "uid": uid},
                    "spec": {"containers": None},
                    "status": {},
                }
                headers = {hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: "muster"}
                return web.Response(headers=headers, body=msgspec.json.encode(pod))
        return await forwarding.pass_on(self._upstream, request, target, body)


def _attempt_message(body: bytes) -> str | None:
    """Return the scheduler's message if an attempt found no node; empty if an error ended the attempt.

    None means that the patch does not end an attempt.

    The end of an attempt sets PodScheduled and removes the nomination (`updatePod` in schedule_one.go). The
    patch leaves out the fields that the scheduler's copy of the pod already has: the status of the condition,
    the reason of the condition if Muster has written the same reason, or the whole condition.

    The scheduler writes other patches after it has found a node, before it binds devices and volumes. These
    patches name the node, or the claim that was created for extended resources.
    """
    try:
        status = _read_patch(body).status
    except (ValueError, RecursionError):
        return None
    for condition in status.conditions:
        if condition.type == "PodScheduled":
            return condition.message if condition.reason == "Unschedulable" else ""
    return "" if status.nominatedNodeName in ("", None) else None


# A scheduler has about fifty connections. Selectors and continue tokens make request heads long. Watches have
# no time limit. A body may be as large as for the API server; after a timeout, the relay answers 408.
LIMITS = ConnectionLimits(
    max_connections=256,
    max_body=3 * 1024 * 1024,
    max_unread=64 * 1024 * 1024,
    timeouts=Timeouts(head=10.0, body=NEVER, answer=NEVER),
    max_head=1024 * 1024,
    max_line=64 * 1024,
    max_field=16 * 1024,
    max_fields=64,
    allows_chunks=True,
)
_STOP_GRACE = 0.2  # seconds for open requests at a stop; then streams are ended
_STOP_TIMEOUT = 2.0  # longest wait for the end of the thread, in seconds


class ProxyServer:
    """Server of the scheduler proxy, which serves as soon as it is created.

    `handlers` is called in the event loop and returns the handlers of requests.
    """

    def __init__(
        self,
        listener: socket.socket,
        endpoint: ApiEndpoint,
        secret: str,
        handlers: Callable[[Upstream], Handlers] = lambda _: Handlers(),
        limits: ConnectionLimits = LIMITS,
    ) -> None:
        self.address = Address(*listener.getsockname()[:2])
        self._listener = listener
        self._endpoint = endpoint
        self._secret = secret
        self._handlers = handlers
        self._limits = limits
        self._loop = asyncio.new_event_loop()
        self._port: ServedPort | None = None
        self._relay: Relay | None = None
        self._end_event = asyncio.Event()

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                    runner.run(self._serve())
            except Exception:
                log.exception("the scheduler proxy has ended")

        self._thread = Thread(target=run, name="view", daemon=True)
        self._thread.start()
        log.info("serving the scheduler proxy", listen=str(self.address))

    def stop(self) -> None:
        """End all streams and connections, within about a second."""
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._end_event.set)
        self._thread.join(_STOP_TIMEOUT)

    def debug_state(self) -> dict[str, object]:
        """Return the state for the debug page. Safe to call in any thread."""
        state: dict[str, object] = {"listen": str(self.address)}
        if self._port and self._relay:
            state |= {
                "connections": len(self._port.connections),
                "watches": self._relay.watches.debug_state(),
            }
        return state

    def fault(self) -> str | None:
        """Return the fault for /livez; None while the server works."""
        return None if self._thread.is_alive() else "the scheduler proxy's thread has ended"

    async def _serve(self) -> None:
        upstream = Upstream(self._endpoint)
        self._relay = relay = Relay(upstream, self._secret, self._handlers(upstream))

        self._port = port = ServedPort(
            "view",
            self._listener,
            self._limits,
            relay,
            refuse=_answer_malformed,
            allows_web_pages=True,
            find_handler=relay.event_handler,
        )
        metrics.view_connections.set_function(lambda: len(port.connections))
        try:
            await self._end_event.wait()
        finally:
            await port.stop(_STOP_GRACE)
            await upstream.close()


def _answer_malformed(fault: HTTPException) -> web.Response:
    """Answer a request that is not HTTP. All other requests are answered by the relay."""
    metrics.view_requests.labels("refused").inc()
    return refusal(HTTPStatus.BAD_REQUEST, fault.description or "malformed request")
