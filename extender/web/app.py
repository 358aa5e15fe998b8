"""The port that the scheduler calls: four verbs, raw bytes in and out.

Only status 200 is read by kube-scheduler; it throws the body of any other answer away. So a verb that fails
inside still answers 200, with the protocol's own Error field, and always with the same words: a message that
changes makes the scheduler patch the pod, which wakes it, which makes it fail again. What went wrong is in
the log. Calls that no scheduler makes, malformed ones above all, get the status that HTTP has for them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from extender.api import protocol
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
)
from extender.telemetry import metrics
from extender.telemetry.logs import about, logger
from extender.web.answers import as_json, show_faults_as_json
from extender.web.caller import Caller

LARGEST_BODY = 16 * 1024 * 1024
FAILED = "Muster failed to answer; its log says why"

log = logger(__name__)
A = TypeVar("A", bound=Message)


class Verbs(Protocol):
    """What answers the scheduler. Each is called in a thread of its own; bind may take its time."""

    def filter(self, args: ExtenderArgs) -> FilterResult: ...
    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]: ...
    def bind(self, args: BindingArgs, caller: Caller) -> BindingResult: ...
    def preempt(self, args: PreemptionArgs) -> PreemptionResult: ...
