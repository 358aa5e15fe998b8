"""Pods of the real API server, read and changed by the proxy, as client-go reads them.

They are the same but for the changes: in lists and watches, in JSON and in protobuf.
"""

from contextlib import closing
from typing import Any

import pytest

from extender.domain.model.versioned_pod_watch import AS_STORED, Appearance, PodCodec, PodEvent
from extender.proxy.pod_events.json import JsonPods
from extender.proxy.pod_events.protobuf import ProtobufPods
from tests.e2e.harness import client_go
from tests.e2e.harness.objects import pod
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.stage import Stage
from tests.proxy.sample_pods import Json, expected

NAMES = ("bound", "gated", "plain", "rich")
LATER = 9_000_000
CHANGES: list[tuple[Appearance, Json]] = [
    (AS_STORED, {}),
    (Appearance("node-7"), {"node": "node-7"}),
    (Appearance(has_marker=True), {"asks": True}),
    (Appearance("node-7", has_marker=True), {"node": "node-7", "asks": True}),
]
AFFINITY_TERM = {"labelSelector": {"matchLabels": {"app": "train"}}, "topologyKey": "zone"}
RICH_SPEC: Json = {
    "initContainers": [
        {"name": "first", "image": "none", "resources": {"requests": {"cpu": "100m"}}},
        {"name": "sidecar", "image": "none", "restartPolicy": "Always"},
    ],
    "volumes": [
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        {
            "name": "names",
            "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]},
        },
    ],
    "affinity": {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [AFFINITY_TERM]},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 7,
                    "preference": {
                        "matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]
                    },
                }
            ]
        },
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2, **AFFINITY_TERM}
    ],
    "tolerations": [
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    ],
    "nodeSelector": {"resourceVersion": "7", "nodeName": "n-9"},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}],
    "securityContext": {
        "runAsUser": 2**31 - 1,
        "fsGroup": 0,
        "sysctls": [{"name": "kernel.x", "value": "1"}],
    },
    "readinessGates": [{"conditionType": "example.com/ready"}],
}


@pytest.fixture(params=[JsonPods(), ProtobufPods()], ids=["json", "protobuf"])
def codec(request: pytest.FixtureRequest) -> PodCodec:
    found: PodCodec = request.param
    return found


@pytest.fixture
def pods(stage: Stage) -> None:
    """Create one pod of each kind, none of them for a running scheduler."""
    stage.nodes(1)
    odd = {"uid": '☃ \\ "quoted" <html> \n k8s }]', "resourceVersion": "7", "empty": ""}
    here: Json = {"namespace": stage.namespace}
    stage.api.create(PODS, pod("bound", **here))
    stage.api.create(PODS, pod("gated", gated=True, **here))
    stage.api.create(PODS, pod("plain", labels={f"l-{number}": "x" for number in range(300)}, **here))
    stage.api.create(
        PODS, pod("rich", annotations=odd, labels={"app": "train"}, ports=[80], **here, **RICH_SPEC)
    )
    stage.api.bind(stage.namespace, "bound", "n0")
    stage.wait_phase(["bound"], "Running")


def path(stage: Stage, **query: Any) -> str:
    asked = "&".join(f"{key}={value}" for key, value in query.items())
    return f"{PODS.path(stage.namespace)}?{asked}"


def watched(stage: Stage, codec: PodCodec) -> list[PodEvent]:
    """Return the initial events, and then those of one pod changed and deleted."""
    asked = path(
        stage,
        watch=1,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
        timeoutSeconds=120,
    )
    watch, splitter, found = stage.api.stream(asked, codec.content_type), codec.events(), list[PodEvent]()
    with closing(watch.pieces()) as pieces:
        for piece in pieces:
            for event in splitter.feed(piece):
                found.append(event)
                if event.ends_initial:
                    stage.api.patch(PODS, "plain", {"metadata": {"labels": {"new": "x"}}}, stage.namespace)
                    stage.api.delete(PODS, "plain", stage.namespace)
            if found and found[-1].type == "DELETED":
                return found
    raise AssertionError("the watch ended before the pod was deleted")


def test_a_watch(stage: Stage, pods: None, codec: PodCodec) -> None:
    events = watched(stage, codec)
    seen = client_go.watched(b"".join(event.frame for event in events), codec.stream_type)
    assert [event.type for event in events] == [type_ for type_, _ in seen]
    assert sorted(event.type for event in events[:5]) == [*["ADDED"] * 4, "BOOKMARK"]
    assert [event.ends_initial for event in events].count(True) == 1
    for event, (_, obj) in zip(events, seen, strict=True):
        assert event.version == int(obj["metadata"]["resourceVersion"])
        agree(event, obj)
    of_pods = [(event, obj) for event, (_, obj) in zip(events, seen, strict=True) if event.facts]
    for appearance, edits in CHANGES:
        written = b"".join(codec.write("MODIFIED", event.pod, LATER, appearance) for event, _ in of_pods)
        changed = client_go.watched(written, codec.stream_type)
        assert changed == [("MODIFIED", expected(obj, LATER, **edits)) for _, obj in of_pods]


def agree(event: PodEvent, obj: Json) -> None:
    """Check that the facts equal client-go's."""
    if event.type == "BOOKMARK":
        assert (event.facts, event.is_unreadable) == (None, False)
        return
    meta, spec = obj["metadata"], obj["spec"]
    assert event.facts is not None
    assert event.facts._asdict() == {
        "uid": meta["uid"],
        "namespace": meta["namespace"],
        "name": meta["name"],
        "scheduler": spec["schedulerName"],
        "node": spec.get("nodeName", ""),
        "version": int(meta["resourceVersion"]),
        "has_ended": obj.get("status", {}).get("phase") in ("Succeeded", "Failed"),
    }


def test_a_list(stage: Stage, pods: None, codec: PodCodec) -> None:
    """Read the list in pages, write it as one, and its pods as events."""
    first = codec.page(fetched(stage, codec, limit=2))
    rest = codec.page(fetched(stage, codec, limit=2, **{"continue": first.continue_token}))
    whole = client_go.listed(fetched(stage, codec), codec.content_type)
    items = [*first.pods, *rest.pods]
    assert [item.facts.name for item in items if item.facts] == list(NAMES)
    assert (rest.continue_token, rest.version) == ("", first.version)
    for appearance, edits in CHANGES:
        writer = codec.list_writer(codec.list_metadata(first.version))
        written = [writer.start(), *(writer.item(item.pod, appearance) for item in items), writer.end()]
        found = client_go.listed(b"".join(written), codec.content_type)
        assert found["items"] == [expected(obj, **edits) for obj in whole["items"]]
        assert found["metadata"] == {"resourceVersion": str(first.version)}
        events = b"".join(codec.write("ADDED", item.pod, LATER, appearance) for item in items)
        shown = client_go.watched(events, codec.stream_type)
        assert shown == [("ADDED", expected(obj, LATER, **edits)) for obj in whole["items"]]


def fetched(stage: Stage, codec: PodCodec, **query: Any) -> bytes:
    status, body = stage.api.exchange(
        "GET", path(stage, **query), None, "application/json", codec.content_type
    )
    assert status == 200
    return body


def test_a_pod_taken_away(stage: Stage, pods: None, codec: PodCodec) -> None:
    for item in codec.page(fetched(stage, codec)).pods:
        assert item.facts is not None
        ((type_, obj),) = client_go.watched(codec.deleted(item.facts, LATER), codec.stream_type)
        metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        facts = item.facts
        assert (type_, tuple(metadata.values())) == (
            "DELETED",
            (facts.name, facts.namespace, facts.uid, str(LATER)),
        )
        assert obj["spec"] == {"containers": None, "schedulerName": facts.scheduler}


def test_a_list_of_one_page_keeps_its_metadata(stage: Stage, pods: None, codec: PodCodec) -> None:
    """A client that asked for pages gets them."""
    body = fetched(stage, codec, limit=3)
    page = codec.page(body)
    writer = codec.list_writer(page.metadata)
    pieces = [writer.start(), *(writer.item(item.pod, AS_STORED) for item in page.pods), writer.end()]
    found = client_go.listed(b"".join(pieces), codec.content_type)
    assert found == client_go.listed(body, codec.content_type)
    assert found["metadata"]["remainingItemCount"] == 1
