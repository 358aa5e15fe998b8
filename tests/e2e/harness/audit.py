"""Write requests to the API server with their users, read from the audit log."""

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.harness.waiting import LAST_PAUSE

Json = dict[str, Any]
GROUPS = ("scheduling.volcano.sh", "bus.volcano.sh", "batch.volcano.sh")
POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Request",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": ""}, *({"group": group} for group in GROUPS)],
        },
        {"level": "None"},
    ],
}


class Write(NamedTuple):
    """Write request. `user` is the last part of the user's name, such as `muster` or `volcano-scheduler`."""

    user: str
    verb: str
    resource: str  # plural name and subresource
    name: str
    status: int
    body: Json


class Audit:
    """Audit log of an API server.

    The object must exist before the API server starts: `ControlPlane(apiserver_flags=audit.flags)`.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "audit.log"
        policy = folder / "audit-policy.json"
        policy.write_text(json.dumps(POLICY))
        self.flags: Sequence[str] = (
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self._log}",
            "--audit-log-mode=blocking",
        )

    def mark(self) -> int:
        """Return the current end of the log, as an argument for `since`."""
        return self._log.stat().st_size if self._log.exists() else 0

    def is_silent(self, kinds: Collection[str], seconds: float) -> bool:
        """Return whether for some seconds no user writes these resources, such as `queues/status`."""
        mark, deadline = self.mark(), time.monotonic() + seconds
        while time.monotonic() < deadline:
            if any(write.resource in kinds for write in self.since(mark)):
                return False
            time.sleep(LAST_PAUSE)
        return True

    def since(self, mark: int) -> list[Write]:
        """Return the writes after a position of the log."""
        with self._log.open("rb") as log:
            log.seek(max(mark - 1, 0))
            if mark and log.read(1) != b"\n":  # The position is in the middle of a line.
                log.readline()
            return [_write_of_entry(json.loads(line)) for line in log if line.endswith(b"\n")]


def counted(writes: Iterable[Write]) -> Counter[str]:
    """Count equal writes. The keys are texts such as `muster patch queues/status a`."""
    return Counter(f"{write.user} {write.verb} {write.resource} {write.name}" for write in writes)


def _write_of_entry(entry: Json) -> Write:
    reference = entry.get("objectRef", {})
    path = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
    return Write(
        entry["user"]["username"].rpartition(":")[2],
        entry["verb"],
        path,
        reference.get("name", ""),
        entry.get("responseStatus", {}).get("code", 0),
        entry.get("requestObject") or {},
    )
