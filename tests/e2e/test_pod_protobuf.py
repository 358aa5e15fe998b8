"""Pods of the real API server are the same to Muster in protobuf as in JSON."""

from contextlib import closing
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.api.objects.pods import Pod
from extender.kube.connection import Connection
from extender.kube.decoding import Decoders, Encoding, Undecodable
from extender.kube.pod_protobuf import PodDecoders
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.objects import pod
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.stage import Stage
from tests.e2e.test_view_codec import RICH_SPEC

_TERM = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FULL: dict[str, Any] = {
    **RICH_SPEC,
    "activeDeadlineSeconds": 600,
    "affinity": {
        "nodeAffinity": {
            _REQUIRED: {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a", "b"]}],
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                    }
                ]
            }
        },
        "podAffinity": {
            _REQUIRED: [{**_TERM, "namespaces": ["x"], "namespaceSelector": {"matchLabels": {"b": "c"}}}]
        },
        "podAntiAffinity": {_REQUIRED: [{**_TERM, "matchLabelKeys": ["d"], "mismatchLabelKeys": ["e"]}]},
    },
    "hostNetwork": True,
    "overhead": None,
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}],
    "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}},
    "schedulingGates": [{"name": "example.com/gate"}],
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
    "volumes": [
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {
            "name": "own",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    }
                }
            },
        },
    ],
}
STATUS: dict[str, Any] = {
    "phase": "Running",
    "startTime": "2026-01-01T00:00:00Z",
    "nominatedNodeName": "n",
    "resources": {"requests": {"cpu": "3"}},
    "allocatedResources": {"cpu": "4"},
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
    "containerStatuses": [
        {
            "name": "main",
            "image": "",
            "imageID": "",
            "ready": True,
            "restartCount": 1,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {"terminated": {"exitCode": 1, "startedAt": "2025-12-31T00:00:00Z"}},
            "resources": {"requests": {"cpu": "2"}},
            "allocatedResources": {"cpu": "2"},
        }
    ],
}


def test_pods_in_protobuf_are_the_pods_in_json(stage: Stage) -> None:
    admin, space = stage.cluster.admin, stage.namespace
    admin.create(PODS, pod("plain", namespace=space))
    admin.create(PODS, pod("full", namespace=space, ports=[8080], **FULL))
    admin.patch(PODS, "full", {"status": STATUS}, space, sub="status")
    with closing(Connection.load(str(stage.cluster.kubeconfig(ADMIN)))) as connection:
        json, protobuf = (_read(connection, space, form) for form in (Decoders(Pod), PodDecoders()))
    assert protobuf.keys() == {"plain", "full"}
    assert protobuf == json
    full = protobuf["full"]
    assert full.status.container_statuses
    assert full.spec.affinity


def _read(connection: Connection, namespace: str, form: Encoding[Pod]) -> dict[str, Pod]:
    """Return the pods by name, with a constant in place of what Muster only compares."""
    with connection.stream(PODS.path(namespace), accept=form.accept) as stream:
        _, pods = form.page(stream.read())
    return {pod.metadata.name: _comparable(pod) for pod in pods if not isinstance(pod, Undecodable)}


def _comparable(pod: Pod) -> Pod:
    spec = pod.spec
    volumes = [
        replace(
            volume,
            persistent_volume_claim=_presence(volume.persistent_volume_claim),
            ephemeral=_presence(volume.ephemeral),
        )
        for volume in spec.volumes or ()
    ]
    spread = _presence(spec.topology_spread_constraints)
    return replace(pod, spec=replace(spec, volumes=volumes, topology_spread_constraints=spread))


def _presence(raw: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(b"there" if bytes(raw) else b"")
