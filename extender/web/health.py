"""Probes and metrics, like those of Kubernetes' own components.

`/livez` says whether this process still works; it never depends on the API server, whose faults a restart of
Muster would not cure. `/readyz` says whether it should be called. Both take `?verbose` and `?exclude=NAME`.
"""

from collections.abc import Callable, Iterator, Mapping

from flask import Flask, Response, request
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder

from extender.telemetry.logs import logger

log = logger(__name__)

Check = Callable[[], str | None]  # why it fails, or None if it does not
Note = Callable[[], str]  # a line of verbose answers, which never makes them fail


def create_health_app(
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    registry: CollectorRegistry = REGISTRY,
    notes: Mapping[str, Note] | None = None,
) -> Flask:
    """The application of the health port. /readyz runs the checks `ready` in addition to `live`, and shows
    the notes."""
    app = Flask(__name__, static_folder=None)
    for name in ("livez", "healthz"):
        app.add_url_rule(f"/{name}", name, _probe(name, live, {}))
    app.add_url_rule("/readyz", "readyz", _probe("readyz", {**live, **ready}, notes or {}))
    app.add_url_rule("/metrics", "metrics", lambda: _metrics(registry))
    return app


def _probe(name: str, checks: Mapping[str, Check], notes: Mapping[str, Note]) -> Callable[[], Response]:
    def probe() -> Response:
        excluded = set(request.args.getlist("exclude"))
        failures = {each: _ask(each, check) for each, check in checks.items() if each not in excluded}
        healthy = not any(failures.values())
        if healthy and "verbose" not in request.args:
            return Response("ok", mimetype="text/plain")
        verdict = f"{name} check {'passed' if healthy else 'failed'}"
        noted = [f"[+]{each} ok: {note()}" for each, note in notes.items()]
        lines = [*_lines(checks, failures), *noted, *_unknown(excluded - checks.keys()), verdict, ""]
        return Response("\n".join(lines), 200 if healthy else 500, mimetype="text/plain")

    return probe


def _ask(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as fault:
        log.exception("a health check failed to answer", check=name)
        return f"the check itself failed with {type(fault).__name__}"


def _lines(checks: Mapping[str, Check], failures: Mapping[str, str | None]) -> Iterator[str]:
    for name in checks:
        if name not in failures:
            yield f"[+]{name} excluded: ok"
        elif reason := failures[name]:
            yield f"[-]{name} failed: {reason}"
        else:
            yield f"[+]{name} ok"


def _unknown(names: set[str]) -> Iterator[str]:
    if names:
        yield f"warn: no such checks to exclude: {', '.join(sorted(names))}"


def _metrics(registry: CollectorRegistry) -> Response:
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(registry), content_type=content_type)
