"""client-go as a reader of lists and watches of pods, which decodes them as in a scheduler."""

import json
import subprocess
from pathlib import Path

from tests.e2e import build
from tests.e2e.harness.watch import Json

MODULE = Path(__file__).parents[1] / "client-go"


def watched(body: bytes, content_type: str) -> list[tuple[str, Json]]:
    """Return the events of a watch: type and object."""
    return [(event["type"], event["object"]) for event in _decoded("watch", content_type, body)]


def listed(body: bytes, content_type: str) -> Json:
    (document,) = _decoded("list", content_type, body)
    return document


def _decoded(verb: str, content_type: str, body: bytes) -> list[Json]:
    program = build.tool(MODULE, "kube-muster.io/client-go")
    completed = subprocess.run([program, verb, content_type], input=body, capture_output=True, timeout=60)
    assert completed.returncode == 0, completed.stderr.decode()
    return [json.loads(line) for line in completed.stdout.splitlines()]
