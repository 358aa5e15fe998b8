"""The verbs' port, called as the scheduler calls it."""

from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from prometheus_client import REGISTRY
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from extender.api.protocol import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MetaVictims,
    PreemptionArgs,
    PreemptionResult,
)
from extender.telemetry import metrics
from extender.web.app import FAILED, create_app
from extender.web.caller import Caller

POD = {"metadata": {"name": "p", "namespace": "n"}}
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


class Agreeable:
    """Answers every verb with its arguments."""

    def filter(self, args: ExtenderArgs) -> FilterResult:
        metrics.because("NoRoom")
        return FilterResult(node_names=args.node_names, failed_nodes={"c": "full"})

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        return [HostPriority("a", 10)]

    def bind(self, args: BindingArgs, caller: Caller) -> BindingResult:
        return BindingResult(f"{args.pod_uid} on {args.node}, gone: {caller.gone()}")

    def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        return PreemptionResult(args.node_name_to_meta_victims or {})


class Broken:
    """Raises in every verb, each time with a different message."""

    def filter(self, args: ExtenderArgs) -> FilterResult:
        raise RuntimeError(f"secret of {args.pod.metadata.name}")

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        raise KeyError("secret")

    def bind(self, args: BindingArgs, caller: Caller) -> BindingResult:
        raise OSError("secret")

    def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        return PreemptionResult({"a": MetaVictims([object()])})  # type: ignore[list-item]


def call(client: FlaskClient, verb: str, body: object) -> Any:
    answer = client.post(f"/v1/{verb}", data=msgspec.json.encode(body))
    assert answer.status_code == 200
    assert answer.mimetype == "application/json"
    return answer.json


def count(verb: str, outcome: str, reason: str = "") -> float:
    labels = {"verb": verb, "outcome": outcome, "reason": reason}
    return REGISTRY.get_sample_value("muster_verb_calls_total", labels) or 0.0


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Agreeable()).test_client()


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
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
    ],
)
def test_each_verb_answers_in_the_protocol_s_own_spelling(
    client: FlaskClient, verb: str, expected: Any
) -> None:
    assert call(client, verb, BODIES[verb]) == expected


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("filter", {"Error": FAILED}),
        ("prioritize", []),
        ("bind", {"Error": FAILED}),
        ("preempt", {"NodeNameToMetaVictims": {}}),
    ],
)
def test_a_verb_that_fails_says_so_in_constant_words(verb: str, expected: Any) -> None:
    before = count(verb, "failed")
    with capture_logs(processors=[merge_contextvars]) as lines:
        answer = call(create_app(Broken()).test_client(), verb, BODIES[verb])
    assert (answer if isinstance(expected, list) else {**answer, **expected}) == answer
    assert "secret" not in str(answer)
    assert [(line["verb"], line["pod"], line["exc_info"]) for line in lines] == [(verb, "n/p", True)]
    assert count(verb, "failed") == before + 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"Pod": {"metadata": {"name": 1}}}', "$.Pod.metadata.name"),
        (b"", "truncated"),
        (b"nonsense", "malformed"),
        (b'{"Pod": 1, ', "truncated"),
        (b'{"Pod": {"metadata": {"name": "\xff"}}}', "utf-8"),
        (b'{"Pod":' + b"[" * 100_000, "recursion"),
        (b"[]", "object"),
        (b"{}", "Pod"),
    ],
)
def test_a_malformed_call_is_answered_with_the_path_of_the_fault(
    client: FlaskClient, body: bytes, words: str
) -> None:
    before = count("filter", "malformed")
    answer = client.post("/v1/filter", data=body)
    assert answer.status_code == 400
    assert words in answer.get_json()["error"]
    assert count("filter", "malformed") == before + 1


def test_a_wrong_method_is_told_the_right_one(client: FlaskClient) -> None:
    answer = client.get("/v1/bind")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert "error" in answer.get_json()


def test_a_call_is_counted_with_the_reason_that_the_verb_gave(client: FlaskClient) -> None:
    before, plain = count("filter", "refused", "NoRoom"), count("prioritize", "ok")
    call(client, "filter", BODIES["filter"])
    call(client, "prioritize", BODIES["prioritize"])
    assert (count("filter", "refused", "NoRoom"), count("prioritize", "ok")) == (before + 1, plain + 1)


def test_the_first_call_shows_that_the_scheduler_knows_us(client: FlaskClient) -> None:
    metrics.scheduler_never_called.set(1)
    call(client, "bind", BINDING)
    assert REGISTRY.get_sample_value("muster_scheduler_never_called") == 0
    assert (REGISTRY.get_sample_value("muster_last_verb_call_timestamp_seconds") or 0) > 0
