"""Which answer a request to the view gets: refused, passed on, or a handler's own.

Whatever happens, a client sees what it would see without the view: an answer of the API server, 429 where the
server cannot be reached, and the end of the connection where an answer ends in the middle.
"""

import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from aiohttp import hdrs, web

from extender.domain.model.appearance import Appearances
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.view import target as targets
from extender.view import upstream as forwarding
from extender.view.target import MalformedTarget, ViewTarget, is_allowed, read_resource, read_target, refusal
from extender.view.upstream import CutOff, TooManyEvents, Unanswered, Upload, Upstream, UpstreamGone

log = logger(__name__)
_requests_of = cache(metrics.view_requests.labels)  # `labels` itself takes a lock on every call
_MOST_LOGGED = 100

# Answers one request. May raise what `pass_on` raises; if the client hangs up, it is cancelled.
Handler = Callable[[web.BaseRequest, ViewTarget], Awaitable[web.StreamResponse]]


class Handlers(NamedTuple):
    """Answers of the view's own. None: passed on as all others."""

    pods: Handler | None = None  # list and watch of pods, of all namespaces or of one
    pod_status: Handler | None = None  # PATCH of a pod's status


class OpenWatches:
    """The watches that are open through the view, for the debug page and the metrics."""

    def __init__(self) -> None:
        self._all: dict[int, tuple[str, str, float]] = {}  # path, client as it names itself, and since when
        self._numbers = itertools.count()

    @contextmanager
    def noted(self, path: str, client: str) -> Iterator[None]:
        number = next(self._numbers)
        self._all[number] = path, client, time.monotonic()
        metrics.view_streams.set(len(self._all))
        try:
            yield
        finally:
            del self._all[number]
            metrics.view_streams.set(len(self._all))

    def show(self) -> list[dict[str, object]]:
        """For the debug page. Any thread."""
        now = time.monotonic()
        return [
            {"path": path, "client": client, "seconds": round(now - since, 1)}
            for path, client, since in sorted(self._all.copy().values())
        ]


class Relay:
    def __init__(self, upstream: Upstream, secret: str, handlers: Handlers) -> None:
        self._upstream = upstream
        self._secret = secret
        self._handlers = handlers
        self.watches = OpenWatches()
        self._logged: set[tuple[str, str]] = set()  # refused methods and resources that the log has already

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        outcome = "left"
        try:
            response, outcome = await self._answer(request)
            return response
        except (CutOff, Unanswered) as fault:
            outcome = "cut"
            log.info("an answer of the API server was cut off", method=request.method, error=str(fault))
            return _hang_up(request)
        except ConnectionError:
            return _hang_up(request)
        except Exception:
            outcome = "failed"
            log.exception("a request to the view failed", method=request.method)
            if request.writer.output_size:
                return _hang_up(request)
            return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "Muster failed to answer; its log says why")
        finally:
            _requests_of(outcome).inc()

    async def _answer(self, request: web.BaseRequest) -> tuple[web.StreamResponse, str]:
        try:
            if request.method == "CONNECT":
                return _last(refusal(HTTPStatus.FORBIDDEN, "there are no tunnels here")), "refused"
            target = read_target(request.method, request.raw_path, self._secret)
            if target is None:
                return refusal(HTTPStatus.NOT_FOUND, "not found"), "refused"
            if "Upgrade" in request.headers or not is_allowed(target.method, target.path):
                resource = read_resource(target.path)
                kind = target.method, resource.name if resource else target.path  # each is logged once
                if kind not in self._logged and len(self._logged) < _MOST_LOGGED:
                    self._logged.add(kind)
                    log.warning("refused a request to the view", method=target.method, path=target.path)
                asked = f"the scheduler's view refuses {target.method} {target.path}"
                answer = refusal(HTTPStatus.FORBIDDEN, f"{asked}: a scheduler does not need it")
                return (_last(answer) if "Upgrade" in request.headers else answer), "refused"
            if not target.watches:
                return await self._pass(request, target), "passed"
            with self.watches.noted(target.path, request.headers.get("User-Agent", "")):
                return await self._pass(request, target), "passed"
        except MalformedTarget as fault:
            return refusal(HTTPStatus.BAD_REQUEST, str(fault)), "refused"
        except forwarding.BadBody as fault:
            return _last(refusal(fault.status, str(fault))), "refused"
        except UpstreamGone as fault:
            return targets.gone(str(fault)), "gone"
        except TooManyEvents as fault:
            return targets.shed(fault.again), "shed"

    async def _pass(self, request: web.BaseRequest, target: ViewTarget) -> web.StreamResponse:
        handler = None
        if "/pods" in target.path and (resource := read_resource(target.path)):
            if resource[:2] == ("", "pods") and not resource.object and target.method == "GET":
                handler = self._handlers.pods
            elif resource[:2] == ("", "pods/status") and target.method == "PATCH":
                handler = self._handlers.pod_status
        if handler is None:
            return await forwarding.pass_on(self._upstream, request, target)
        return await handler(request, target)


def _last(response: web.Response) -> web.Response:
    """The rest of the connection is not worth reading."""
    response.force_close()
    return response


def _hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """End the connection without the end of an answer."""
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
    """The scheduler's patches of the status of pods. Those that end an attempt of a pod of ours end here:
    they are read, and Muster writes PodScheduled (PatchPodStatus in pkg/scheduler/util/utils.go; the
    scheduler makes no use of the answer's body). All others are the API server's.
    """

    def __init__(self, upstream: Upstream, appearances: Appearances) -> None:
        self._upstream, self._appearances = upstream, appearances

    async def __call__(self, request: web.BaseRequest, target: ViewTarget) -> web.StreamResponse:
        """Raises what `pass_on` raises."""
        body = await forwarding.read_body(request)
        if isinstance(body, Upload):
            body = b"".join([piece async for piece in body])
        message = _refusal(body)
        if message is not None:
            _, _, _, _, namespace, _, name, _ = target.path.rstrip("/").split("/")
            if uid := self._appearances.note_status(namespace, name, message):
                pod = {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "metadata": {"name": name, "namespace": namespace, "uid": uid},
                    "spec": {"containers": None},
                    "status": {},
                }
                headers = {hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: "muster"}
                return web.Response(headers=headers, body=msgspec.json.encode(pod))
        return await forwarding.send_on(self._upstream, request, target, body)


def _refusal(body: bytes) -> str | None:
    """The scheduler's words if it has found no node for a pod, empty after errors. None: no attempt ended.

    The end of an attempt sets PodScheduled and withdraws the nomination (`updatePod` in schedule_one.go).
    What its copy of the pod has already is left out of the patch: the status of the condition, its reason
    where Muster has written the same one, or all of it. Other patches come before the devices and volumes of
    a pod that has its node are bound: they name the node, or the claim made for extended resources.
    """
    try:
        status = _read_patch(body).status
    except (ValueError, RecursionError):
        return None
    for condition in status.conditions:
        if condition.type == "PodScheduled":
            return condition.message if condition.reason == "Unschedulable" else ""
    return "" if status.nominatedNodeName in ("", None) else None
