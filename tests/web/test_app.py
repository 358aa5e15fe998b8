"""The application of the verbs' port, called as the scheduler calls it."""

import asyncio
import re
from sys import version_info
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from werkzeug.exceptions import BadRequest, MethodNotAllowed

from extender.api.protocol import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MetaVictims,
    NodeNames,
    PreemptionArgs,
    PreemptionResult,
)
from extender.ports.connection import FAILURE_TEXT, Caller
from extender.telemetry import metrics
from extender.verbs.verbs import SchedulerVerbs
from extender.web.server import App
from tests.rows import each_of

POD = {"metadata": {"name": "p", "namespace": "n"}}
NAMES = b'{"Pod": {"metadata": {"name": "p", "namespace": "n"}}, "NodeNames": %b}'
BINDING = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
BODIES = {
    "filter": {"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]},
    "prioritize": {"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]},
    "bind": BINDING,
    "preempt": {
        "Pod": POD,
        "NodeNameToVictims": {},
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "v"}]}},
    },
}


class Agreeable(SchedulerVerbs):
    """Verbs that answer with their arguments."""

    def __init__(self) -> None:
        """Skip the base initializer, which needs a ledger."""

    def filter(self, args: ExtenderArgs) -> FilterResult:
        metrics.record_refusal("NoRoom")
        return FilterResult(node_names=list(NodeNames(args.node_names)), failed_nodes={"c": "full"})

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        return [HostPriority("a", 10)]

    async def bind(self, args: BindingArgs, caller: Caller) -> BindingResult:
        return BindingResult(f"{args.pod_uid} on {args.node}, gone: {caller.has_hung_up()}")

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        return PreemptionResult(args.node_name_to_meta_victims or {})


class Holding(Agreeable):
    """Verbs that hold every bind call."""

    async def bind(self, args: BindingArgs, caller: Caller) -> BindingResult:
        await asyncio.Event().wait()
        raise AssertionError


class Broken(SchedulerVerbs):
    """Verbs that raise, each time with a different message."""

    def __init__(self) -> None:
        """Skip the base initializer, which needs a ledger."""

    def filter(self, args: ExtenderArgs) -> FilterResult:
        raise RuntimeError(f"secret of {args.pod.metadata.name}")

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        raise KeyError("secret")

    async def bind(self, args: BindingArgs, caller: Caller) -> BindingResult:
        raise OSError("secret")

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        return PreemptionResult({"a": MetaVictims([object()])})  # type: ignore[list-item]


def ask(app: App, verb: str, body: bytes, method: str = "POST") -> bytes:
    return asyncio.run(app(method, f"/v1/{verb}", body, Caller()))


def call(app: App, verb: str, body: object) -> Any:
    return msgspec.json.decode(ask(app, verb, msgspec.json.encode(body)))


def count(verb: str, outcome: str, reason: str = "") -> float:
    labels = {"verb": verb, "outcome": outcome, "reason": reason}
    return REGISTRY.get_sample_value("muster_verb_calls_total", labels) or 0.0


@pytest.fixture
def app() -> App:
    return App(Agreeable())


@each_of(
    (
        "filter",
        {
            "Nodes": None,
            "NodeNames": ["a", "b"],
            "FailedNodes": {"c": "full"},
            "FailedAndUnresolvableNodes": None,
            "Error": "",
        },
    ),
    ("prioritize", [{"Host": "a", "Score": 10}]),
    ("bind", {"Error": "u on a, gone: False"}),
    ("preempt", {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}}),
)
def test_each_verb_answers_in_the_protocol_s_own_spelling(verb: str, expected: Any, *, app: App) -> None:
    assert call(app, verb, BODIES[verb]) == expected


@each_of(
    ("filter", {"Error": FAILURE_TEXT}),
    ("prioritize", []),
    ("bind", {"Error": FAILURE_TEXT}),
    ("preempt", {"NodeNameToMetaVictims": {}}),
)
def test_a_failed_verb_answers_with_a_constant_message(verb: str, expected: Any) -> None:
    before = count(verb, "failed")
    with capture_logs(processors=[merge_contextvars]) as lines:
        answer = call(App(Broken()), verb, BODIES[verb])
    assert (answer if isinstance(expected, list) else {**answer, **expected}) == answer
    assert "secret" not in str(answer)
    assert [(line["verb"], line["pod"], line["exc_info"]) for line in lines] == [(verb, "n/p", True)]
    assert count(verb, "failed") == before + 1


@each_of(
    (b'{"Pod": {"metadata": {"name": 1}}}', "$.Pod.metadata.name"),
    (b"", "truncated"),
    (b"nonsense", "malformed"),
    (b'{"Pod": 1, ', "truncated"),
    (b'{"Pod": {"metadata": {"name": "\xff"}}}', "utf-8"),
    (b'{"Pod":' + b"[" * 100_000, "recursion" if version_info < (3, 14) else "truncated"),
    (b"[]", "object"),
    (b"{}", "Pod"),
    # These are read only once a verb asks for them.
    (NAMES % b"7", "NodeNames: Expected `array`, got `int`"),
    (NAMES % b'{"a": "b"}', "NodeNames: Expected `array`, got `object`"),
    (NAMES % b'["a", null]', "NodeNames: Expected `str`, got `null` - at `$[1]`"),
    (NAMES % b'["a", [[]]]', "NodeNames: Expected `str`, got `array` - at `$[1]`"),
    (NAMES % b'["\xff"]', "NodeNames: 'utf-8'"),
)
def test_a_malformed_call_is_answered_with_the_path_of_the_fault(
    body: bytes, message: str, *, app: App
) -> None:
    before = count("filter", "malformed")
    with capture_logs() as lines, pytest.raises(BadRequest, match=re.escape(message)):
        ask(app, "filter", body)
    assert (count("filter", "malformed"), lines) == (before + 1, [])


def test_a_wrong_method_is_answered_with_the_allowed_one(app: App) -> None:
    with pytest.raises(MethodNotAllowed) as fault:
        ask(app, "bind", b"", "GET")
    assert fault.value.valid_methods == ["POST"]


def test_a_caller_that_hangs_up_is_counted_as_refused() -> None:
    before = count("bind", "refused")

    body = msgspec.json.encode(BINDING)

    async def hang_up() -> None:
        asked = asyncio.create_task(App(Holding())("POST", "/v1/bind", body, Caller()))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(hang_up())
    assert count("bind", "refused") == before + 1


def test_a_call_is_counted_with_the_reason_that_the_verb_gave(app: App) -> None:
    before, plain = count("filter", "refused", "NoRoom"), count("prioritize", "ok")
    call(app, "filter", BODIES["filter"])
    call(app, "prioritize", BODIES["prioritize"])
    assert (count("filter", "refused", "NoRoom"), count("prioritize", "ok")) == (before + 1, plain + 1)


def test_the_first_call_counts_as_a_sign_of_the_scheduler(app: App) -> None:
    metrics.scheduler_never_called.set(1)
    metrics.first_call.clear()
    call(app, "bind", BINDING)
    assert REGISTRY.get_sample_value("muster_scheduler_never_called") == 0
    assert (REGISTRY.get_sample_value("muster_last_verb_call_timestamp_seconds") or 0) > 0
