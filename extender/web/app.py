"""The calls of the scheduler: four verbs, raw bytes in and out.

kube-scheduler reads only answers with status 200. So a verb that fails internally still answers 200, with the
protocol's own Error field, and always with the same message: one that changes makes the scheduler patch the
pod, and try it again. Calls that no scheduler makes get the HTTP status for their fault.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound

from extender.api import protocol
from extender.ports.connection import Caller
from extender.ports.refusals import FAILED
from extender.telemetry import metrics
from extender.telemetry.logs import about, logger
from extender.verbs.verbs import SchedulerVerbs

LARGEST_BODY = 16 * 1024 * 1024  # the port enforces it

# A nesting deeper than the decoder's stack is as malformed as a missing brace.
MALFORMED = (protocol.MalformedRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError)

log = logger(__name__)


class Verb(NamedTuple):
    """One route."""

    name: str
    reads: type[protocol.ExtenderArgs | protocol.BindingArgs | protocol.PreemptionArgs]
    answer: Callable[[Any, Caller], Awaitable[object]]
    failed: object  # the answer if `answer` raises


class App:
    """The application of the verbs' port, under /v1/. A call is cancelled when its caller hangs up."""

    def __init__(self, verbs: SchedulerVerbs) -> None:
        self._table = {f"/v1/{verb.name}": verb for verb in _table(verbs)}

    async def __call__(self, method: str, path: str, body: bytes, caller: Caller) -> bytes:
        """The body of the answer, JSON. Raises HTTPException for a call that no scheduler makes."""
        verb = self._table.get(path) or self._table.get(path.partition("?")[0])
        if verb is None:
            raise NotFound(f"Allowed are {', '.join(self._table)}")
        if method != "POST":
            raise MethodNotAllowed(["POST"])
        with metrics.counted(verb.name) as call:
            try:
                args = protocol.decode(body, verb.reads)
            except MALFORMED as fault:
                call.outcome = "malformed"
                raise BadRequest(str(fault)) from fault
            if isinstance(args, protocol.BindingArgs):
                pod = f"{args.pod_namespace}/{args.pod_name}"
            else:
                pod = f"{args.pod.metadata.namespace}/{args.pod.metadata.name}"
            with about(pod=pod):
                try:  # encoding is guarded like the verb itself: either may raise something unforeseen
                    return protocol.encode(await verb.answer(args, caller))
                except asyncio.CancelledError:
                    metrics.refused()
                    raise
                except Exception:
                    call.outcome = "failed"
                    log.exception("a verb failed", verb=verb.name)
                    return protocol.encode(verb.failed)


def _table(verbs: SchedulerVerbs) -> tuple[Verb, ...]:
    async def filter_nodes(args: protocol.ExtenderArgs, _: Caller) -> protocol.FilterResult:
        return verbs.filter(args)

    async def prioritize(args: protocol.ExtenderArgs, _: Caller) -> list[protocol.HostPriority]:
        return verbs.prioritize(args)

    nothing = protocol.PreemptionResult({})
    return (
        Verb("filter", protocol.ExtenderArgs, filter_nodes, protocol.FilterResult(error=FAILED)),
        Verb("prioritize", protocol.ExtenderArgs, prioritize, []),
        Verb("bind", protocol.BindingArgs, verbs.bind, protocol.BindingResult(error=FAILED)),
        Verb("preempt", protocol.PreemptionArgs, lambda args, _: verbs.preempt(args), nothing),
    )
