"""The port that the scheduler calls: four verbs, raw bytes in and out.

kube-scheduler reads only answers with status 200 and discards the body of any other. So a verb that fails
internally still answers 200, with the protocol's own Error field, and always with the same message: a message
that changes makes the scheduler patch the pod, which makes it try the pod again, which fails again. The cause
is in the log. Calls that no scheduler makes, above all malformed ones, get the HTTP status for their fault.

The scheduler makes its filter calls one at a time, and waits. They bypass Flask's routing and contexts, which
cost more than most answers.
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

LARGEST_BODY = 16 * 1024 * 1024  # the port enforces it
FAILED = "Muster failed to answer; its log says why"

# A nesting deeper than the decoder's stack is as malformed as a missing brace.
MALFORMED = (MalformedRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError)

log = logger(__name__)
Environ = dict[str, Any]


class Verbs(Protocol):
    """The answers to the scheduler. Each is called in a thread of its own; bind may block."""

    def filter(self, args: ExtenderArgs) -> FilterResult: ...
    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]: ...
    def bind(self, args: BindingArgs, caller: Caller) -> BindingResult: ...
    def preempt(self, args: PreemptionArgs) -> PreemptionResult: ...


class Verb(NamedTuple):
    """One route."""

    name: str
    reads: type[Message]  # the type of its request
    answer: Callable[[Any, Caller], object]
    failed: object  # the answer if `answer` raises


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
    """For a path that Flask takes for one of the table, such as //v1/filter, but that is not in the table."""
    raise NotFound


def _table(verbs: Verbs) -> tuple[Verb, ...]:
    return (
        Verb("filter", ExtenderArgs, lambda args, _: verbs.filter(args), FilterResult(error=FAILED)),
        Verb("prioritize", ExtenderArgs, lambda args, _: verbs.prioritize(args), []),
        Verb("bind", BindingArgs, verbs.bind, BindingResult(error=FAILED)),
        Verb("preempt", PreemptionArgs, lambda args, _: verbs.preempt(args), PreemptionResult({})),
    )


class Shortcut:
    """Serves the calls of the table; `otherwise` serves all others."""

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
    """The body of the answer. Raises HTTPException for a call that no scheduler makes."""
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
    """The answer as bytes. Encoding is guarded like the verb itself: either may raise something
    unforeseen."""
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
