"""The extender protocol, as Go writes it."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from extender.api.protocol import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MalformedRequest,
    MetaVictims,
    NodeNames,
    PreemptionArgs,
    PreemptionResult,
    Victim,
    decode,
    encode,
)
from tests.rows import each_of

POD = {
    "metadata": {"name": "p", "namespace": "team", "uid": "u1", "creationTimestamp": None},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "image": "x"}]},
    "status": {},
}
BINDING = {"PodName": "p", "PodNamespace": "team", "PodUID": "u1", "Node": "n1"}


def body(**keys: Any) -> bytes:
    return json.dumps(keys).encode()


def test_a_filter_call_of_a_scheduler_with_a_node_cache() -> None:
    args = decode(body(Pod=POD, Nodes=None, NodeNames=["a", "b"]), ExtenderArgs)
    assert (args.pod.metadata.uid, args.pod.spec.containers[0].resources.requests) == ("u1", {"cpu": "1"})
    assert (bytes(args.nodes), json.loads(bytes(args.node_names))) == (b"null", ["a", "b"])


def test_names_of_nodes_are_found_whole_and_seen_in_order() -> None:
    offered = NodeNames(msgspec.Raw(b'["n10", "n2","n1"]'))
    assert all(name in offered for name in ("n10", "n2", "n1"))
    assert not any(name in offered for name in ("n", "1", "n100", ""))
    assert (list(offered), offered[:1], len(offered)) == (["n10", "n2", "n1"], ["n10"], 3)


def test_absent_pointers_read_like_null() -> None:
    args = decode(body(Pod=POD), ExtenderArgs)
    assert (bytes(args.nodes), bytes(args.node_names)) == (b"null", b"null")


@each_of(
    {"pod": POD, "nodenames": ["a"]},
    {"POD": POD, "NODENAMES": ["a"]},
    {"Pod": POD, "nodeNames": ["a"], "Unheard": {"of": [1]}},
    {"Pod": POD, "NodeNames": ["a"], "unheard": None},
)
def test_other_capitalisations_are_read_and_unknown_keys_skipped(keys: dict[str, Any]) -> None:
    args = decode(body(**keys), ExtenderArgs)
    assert args.pod.metadata.name == "p"
    assert json.loads(bytes(args.node_names)) == ["a"]


@each_of(str, str.lower, str.upper)
def test_a_binding_in_any_capitalisation(spelling: Any) -> None:
    args = decode(body(**{spelling(key): value for key, value in BINDING.items()}), BindingArgs)
    assert asdict(args) == {"pod_name": "p", "pod_namespace": "team", "pod_uid": "u1", "node": "n1"}


@each_of(
    (body(Pod={**POD, "metadata": {"name": 7}}), "$.Pod.metadata.name"),
    (body(Pod=None), "$.Pod"),
    (body(NodeNames=["a"]), "`Pod`"),
    (body(pod={**POD, "spec": {"containers": [{"resources": 3}]}}), "$.Pod.spec.containers[0].resources"),
    (b"[]", "array"),
    (b"null", "null"),
    (b"{", "truncated"),
    (b"", "truncated"),
    (b"\xff\xfe", "malformed"),
    (b'{"Pod": {}} tail', "trailing"),
)
def test_a_malformed_body_names_the_path_of_its_fault(text: bytes, path: str) -> None:
    with pytest.raises(MalformedRequest) as fault:
        decode(text, ExtenderArgs)
    assert path in str(fault.value)


@each_of(*BINDING)
def test_a_binding_without_a_field_is_refused(missing: str) -> None:
    with pytest.raises(MalformedRequest, match=missing):
        decode(body(**{key: value for key, value in BINDING.items() if key != missing}), BindingArgs)


def test_victims_in_both_forms() -> None:
    meta = {
        "n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2},
        "n2": {"Pods": None, "NumPDBViolations": 0},
    }
    full = {"n1": {"Pods": [POD], "NumPDBViolations": 1}}
    args = decode(body(Pod=POD, NodeNameToMetaVictims=meta, NodeNameToVictims=full), PreemptionArgs)
    assert args.node_name_to_meta_victims == {
        "n1": MetaVictims([Victim("v")], 2),
        "n2": MetaVictims(None, 0),
    }
    assert args.node_name_to_victims is not None
    assert [pod.metadata.uid for pod in args.node_name_to_victims["n1"].pods or ()] == ["u1"]


@each_of(
    (
        FilterResult(node_names=["a"]),
        '{"Nodes":null,"NodeNames":["a"],"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":""}',
    ),
    (BindingResult(), '{"Error":""}'),
    ([HostPriority("a", 10)], '[{"Host":"a","Score":10}]'),
    (
        PreemptionResult({"a": MetaVictims([Victim("v")])}),
        '{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"v"}],"NumPDBViolations":0}}}',
    ),
)
def test_answers_are_written_as_go_writes_them(answer: Any, text: str) -> None:
    assert encode(answer) == text.encode()
