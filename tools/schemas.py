"""Schemas of Kubernetes' own kinds for the embedded API server, as a real API server publishes them.

    python -m tools.schemas          starts the control plane of the e2e tests, and writes the schemas
    python -m tools.schemas --check  compares the schemas; exit status 1 if they differ

Each file has one entry in each line, so that the changes of the next release are readable as a diff. kubectl
sends these kinds as protobuf messages, whose fields are in the Go modules of the same release
(proto_messages.py).
"""

import json
import sys
from typing import Any

from extender.apimachinery.field_schemas import KUBERNETES, referenced_names
from extender.apimachinery.kinds import SCALE, SERVED_KINDS, ResourceKind
from extender.sim.apiserver.protobuf import MESSAGES
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tools.proto_messages import messages

Json = dict[str, Any]
_SENT = ("Binding", "Eviction", "DeleteOptions", "Unknown")  # Unknown is the envelope of all other messages


def published_schemas(api: Client) -> str:
    """Return the schemas of the kinds that the embedded server serves, and all schemas they refer to."""
    kinds_ = [*_own_kinds(), SCALE]
    all_schemas: Json = {}
    for root in sorted({kind.root.strip("/") for kind in _own_kinds()}):
        all_schemas |= api.request("GET", f"/openapi/v3/{root}")["components"]["schemas"]
    kind_names = {(kind.group, kind.name) for kind in kinds_}
    pending = [
        name for name, schema in all_schemas.items() if _names(schema) & kind_names and "List" not in name
    ]
    schemas: Json = {}
    while pending:
        name = pending.pop()
        if name not in schemas:
            schemas[name] = all_schemas[name]
            pending += referenced_names(all_schemas[name])
    return _lines(schemas)


def sent_messages() -> str:
    """Return the protobuf messages that clients send: the served kinds, and other request bodies."""
    kinds = [kind.name for kind in (*_own_kinds(), SCALE)]
    return _lines(messages([*kinds, *_SENT]))


def _own_kinds() -> list[ResourceKind]:
    return [kind for kind in SERVED_KINDS if not kind.custom]


def _lines(schemas: Json) -> str:
    lines = (f"{json.dumps(name)}: {json.dumps(schemas[name])}" for name in sorted(schemas))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _names(schema: Json) -> set[tuple[str, str]]:
    """Return the group and kind of a schema; empty for a schema that several kinds share."""
    names = schema.get("x-kubernetes-group-version-kind", ())
    return {(names[0]["group"], names[0]["kind"])} if len(names) == 1 else set()


def main(arguments: list[str]) -> int:
    with ControlPlane() as cluster:
        generated = {KUBERNETES: published_schemas(cluster.admin), MESSAGES: sent_messages()}
    if "--check" in arguments:
        same = all(path.read_text(encoding="utf-8") == text for path, text in generated.items())
        print("the schemas are those of the API server" if same else "they differ: python -m tools.schemas")  # noqa: T201
        return 0 if same else 1
    for path, text in generated.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
