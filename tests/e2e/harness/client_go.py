"""Decoder of lists and watches of pods that uses client-go, as a scheduler does."""

import json
import subprocess
from pathlib import Path

from tests.e2e import build
from tests.e2e.harness.watch import Json

MODULE = Path(__file__).parents[1] / "client-go"


def watched(body: bytes, content_type: str) -> list[tuple[str, Json]]:
    """Return the events of a watch as pairs of type and object. `body` has the bytes of the watch."""
    return [(event["type"], event["object"]) for event in _decoded("watch", content_type, body)]


def listed(body: bytes, content_type: str) -> Json:
    """Return the list object that the bytes of `body` encode."""
    (document,) = _decoded("list", content_type, body)
    return document


def _decoded(verb: str, content_type: str, body: bytes) -> list[Json]:
    """Decode bytes with client-go, and return the objects. `verb` is `list` or `watch`."""
    program = build.tool(MODULE, "kube-muster.io/client-go")
    completed = subprocess.run([program, verb, content_type], input=body, capture_output=True, timeout=60)
    assert completed.returncode == 0, completed.stderr.decode()
    return [json.loads(line) for line in completed.stdout.splitlines()]
