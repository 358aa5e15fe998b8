"""What a replica says of itself: its health port, asked through the API server's proxy to its pod."""

import re

from extender.cli.check.findings import Installation, Serving
from extender.kube.errors import ApiError, Forbidden, Refused

FAILED = re.compile(r"^\[-\](\S+) failed: (.+)$", re.MULTILINE)
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class OutOfReach(Exception):
    """Why a pod cannot be asked from here."""


def ask(site: Installation, pod: Serving, page: str) -> str:
    """What the pod answers, also where that is a failure of its own. Raises OutOfReach, Forbidden."""
    address = pod.setting("health_listen")
    host, _, port = address.rpartition(":")
    if host in _LOOPBACK:
        raise OutOfReach(f"it listens on {address} only")
    try:
        return site.raw(f"/api/v1/namespaces/{site.namespace}/pods/{pod.name}:{port}/proxy/{page}")
    except Forbidden:
        raise
    except Refused as fault:
        answer = fault.body.decode("utf-8", "replace")
        if FAILED.search(answer):
            return answer
        raise OutOfReach(str(fault)) from fault
    except ApiError as fault:
        raise OutOfReach(str(fault)) from fault


def note(readiness: str, name: str) -> str:
    """A note of /readyz?verbose; empty where there is none."""
    found = re.search(rf"^\[\+\]{name} ok: (.+)$", readiness, re.MULTILINE)
    return found[1] if found else ""


def value(metrics: str, name: str) -> float:
    """A metric without labels; 0 where there is none."""
    found = re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0
