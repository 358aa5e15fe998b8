"""The port that the scheduler calls: four verbs, raw bytes in and out.

Only status 200 is read by kube-scheduler; it throws the body of any other answer away. So a verb that fails
inside still answers 200, with the protocol's own Error field, and always with the same words: a message that
changes makes the scheduler patch the pod, which wakes it, which makes it fail again. What went wrong is in
the log. Calls that no scheduler makes, malformed ones above all, get the status that HTTP has for them.

The scheduler makes its filter calls one at a time, and waits. They go past Flask's routing and contexts,
which cost more than most answers do.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol
from wsgiref.types import StartResponse, WSGIApplication

import msgspec
from flask import Flask
from werkzeug.exceptions import BadRequest, HTTPException, NotFound

from extender.api.protocol import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MalformedRequest,
    Message,
    PreemptionArgs,
    PreemptionResult,
    decode,
    encode,
)
from extender.telemetry import metrics
from extender.telemetry.logs import about, logger
from extender.web.answers import fault_as_json, show_faults_as_json
from extender.web.caller import Caller

LARGEST_BODY = 16 * 1024 * 1024  # the port sees to it
FAILED = "Muster failed to answer; its log says why"

# A nesting deeper than the decoder's stack is as malformed as a missing brace.
MALFORMED = (MalformedRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError)

log = logger(__name__)
Environ = dict[str, Any]


class Verbs(Protocol):
    """What answers the scheduler. Each is called in a thread of its own; bind may take its time."""

    def filter(self, args: ExtenderArgs) -> FilterResult: ...
    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]: ...
    def bind(self, args: BindingArgs, caller: Caller) -> BindingResult: ...
    def preempt(self, args: PreemptionArgs) -> PreemptionResult: ...


class Verb(NamedTuple):
    """One route: what it reads, who answers, and what it says when that fails."""

    name: str
    reads: type[Message]
    answer: Callable[[Any, Caller], object]
    failed: object


def create_app(verbs: Verbs) -> Flask:
    """The application of the verbs' port, under /v1/."""
    app = Flask(__name__, static_folder=None)
    show_faults_as_json(app)
    table = {f"/v1/{verb.name}": verb for verb in _table(verbs)}
    for path, verb in table.items():  # so that other methods are answered with 405
        app.add_url_rule(path, verb.name, _not_here, methods=["POST"], provide_automatic_options=False)
    app.wsgi_app = Shortcut(app.wsgi_app, table)  # type: ignore[method-assign]  # as Flask's docs advise
    return app


def _not_here() -> NoReturn:
    """A path that Flask takes for one of the table, as //v1/filter, which the table has not."""
    raise NotFound


def _table(verbs: Verbs) -> tuple[Verb, ...]:
    return (
        Verb("filter", ExtenderArgs, lambda args, _: verbs.filter(args), FilterResult(error=FAILED)),
        Verb("prioritize", ExtenderArgs, lambda args, _: verbs.prioritize(args), []),
        Verb("bind", BindingArgs, verbs.bind, BindingResult(error=FAILED)),
        Verb("preempt", PreemptionArgs, lambda args, _: verbs.preempt(args), PreemptionResult({})),
    )


class Shortcut:
    """Serves what the table has; all other calls are `otherwise`'s."""

    def __init__(self, otherwise: WSGIApplication, table: Mapping[str, Verb]) -> None:
        self._otherwise = otherwise
        self._table = table

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        verb = self._table.get(environ["PATH_INFO"])
        if verb is None or environ["REQUEST_METHOD"] != "POST":
            return self._otherwise(environ, start_response)
        try:
            body = _serve(verb, environ)
        except HTTPException as fault:
            return fault_as_json(fault)(environ, start_response)
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


def _serve(verb: Verb, environ: Environ) -> bytes:
    """The answer's body. Raises HTTPException for a call that no scheduler makes."""
    with metrics.counted(verb.name) as call:
        args = _read(verb.reads, environ, call)
        with about(pod=_pod_of(args)):
            return _answer(verb, args, Caller.of(environ), call)


def _read(kind: type[Message], environ: Environ, call: metrics.Call) -> Message:
    try:
        return decode(environ["wsgi.input"].read(), kind)
    except MALFORMED as fault:
        call.outcome = "malformed"
        raise BadRequest(str(fault)) from fault


def _answer(verb: Verb, args: Message, caller: Caller, call: metrics.Call) -> bytes:
    """The answer as bytes. Encoding is guarded like the verb itself: either may meet what nobody foresaw."""
    try:
        return encode(verb.answer(args, caller))
    except Exception:
        call.outcome = "failed"
        log.exception("a verb failed", verb=verb.name)
        return encode(verb.failed)


def _pod_of(args: Message) -> str:
    if isinstance(args, BindingArgs):
        return f"{args.pod_namespace}/{args.pod_name}"
    if isinstance(args, ExtenderArgs | PreemptionArgs):
        return f"{args.pod.metadata.namespace}/{args.pod.metadata.name}"
    return ""
