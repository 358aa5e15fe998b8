"""Probes and metrics, like those of Kubernetes' own components: /livez says whether this process still works,
whatever the API server does, /readyz whether it should be called. Both take ?verbose and ?exclude=NAME."""

from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from werkzeug.exceptions import MethodNotAllowed, NotFound

from extender.telemetry.logs import logger

log = logger(__name__)

_METHODS = ("GET", "HEAD", "OPTIONS")
Check = Callable[[], str | None]  # why it fails, or None if it does not
Note = Callable[[], str]  # a line of verbose answers, which never makes them fail


class HealthApp:
    """The health port. /readyz runs the checks `ready` beside `live`, and shows the notes."""

    def __init__(
        self,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        registry: CollectorRegistry = REGISTRY,
        notes: Mapping[str, Note] | None = None,
    ) -> None:
        self._live, self._ready = live, {**live, **ready}
        self._registry = registry
        self._notes = notes or {}

    def __call__(self, request: web.BaseRequest, body: bytes) -> web.Response:
        """Raises HTTPException."""
        path = "/" + request.path.lstrip("/")
        if path not in ("/livez", "/healthz", "/readyz", "/metrics"):
            raise NotFound("Allowed are /livez, /healthz, /readyz and /metrics")
        if request.method == "OPTIONS":
            return web.Response(headers={"Allow": ", ".join(_METHODS), "Server": "muster"})
        if request.method not in _METHODS:
            raise MethodNotAllowed(_METHODS)
        if path == "/metrics":
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
            return _answer(encode(self._registry), content_type)
        if path == "/readyz":
            return self._probe(request, self._ready, self._notes)
        return self._probe(request, self._live, {})

    def _probe(
        self, request: web.BaseRequest, checks: Mapping[str, Check], notes: Mapping[str, Note]
    ) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        lines, healthy = [], True
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            try:
                reason = check()
            except Exception as fault:
                log.exception("a health check failed to answer", check=name)
                reason = f"the check itself failed with {type(fault).__name__}"
            healthy = healthy and not reason
            lines.append(f"[-]{name} failed: {reason}" if reason else f"[+]{name} ok")
        if healthy and "verbose" not in request.query:
            return _answer(b"ok")
        lines += [f"[+]{name} ok: {note()}" for name, note in notes.items()]
        if unknown := excluded - checks.keys():
            lines.append(f"warn: no such checks to exclude: {', '.join(sorted(unknown))}")
        verdict = f"{request.path.lstrip('/')} check {'passed' if healthy else 'failed'}"
        text = "\n".join((*lines, verdict, ""))
        return _answer(text.encode(errors="replace"), status=200 if healthy else 500)


def _answer(body: bytes, content_type: str = "text/plain; charset=utf-8", status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type, "Server": "muster"})
