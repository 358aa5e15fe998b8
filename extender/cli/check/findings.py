"""Findings of a check, and requests to the health port of Muster's replicas."""

import re
from typing import NamedTuple

from extender.cli.installation import Installation, ServingObject
from extender.kube.errors import ApiError, Forbidden, Refused

OK, WRONG, UNKNOWN = "ok", "wrong", "unknown"
UNSEEN = "unseen"  # state: the user may not read the object


class Finding(NamedTuple):
    subject: str
    state: str
    message: str
    todo: str = ""


def fine(subject: str, message: str) -> Finding:
    return Finding(subject, OK, message)


def error(subject: str, message: str, todo: str) -> Finding:
    return Finding(subject, WRONG, message, todo)


# Remedy that restores the objects of an overlay.
APPLY = "kubectl apply -k overlay, with the overlay of your install"


# ---- answers of a replica's health port, through the API server's proxy to its pod

FAILED_CHECK = re.compile(r"^\[-\](\S+) failed: (.+)$", re.MULTILINE)


class OutOfReach(Exception):
    """Error: a pod cannot be reached from this machine."""


def ask_replica(site: Installation, pod: ServingObject, page: str) -> str:
    """Return a pod's answer, even if the answer reports failures.

    Raises:
        OutOfReach: The pod cannot be reached.
        Forbidden: The user may not use the proxy to pods.
    """
    address = pod.setting("health_listen")
    host, _, port = address.rpartition(":")
    if host in ("127.0.0.1", "localhost", "[::1]"):
        raise OutOfReach(f"it listens on {address} only")
    try:
        return site.text_at(f"/api/v1/namespaces/{site.namespace}/pods/{pod.name}:{port}/proxy/{page}")
    except Forbidden:
        raise
    except Refused as fault:
        answer = fault.body.decode("utf-8", "replace")
        if FAILED_CHECK.search(answer):
            return answer
        raise OutOfReach(str(fault)) from fault
    except ApiError as fault:
        raise OutOfReach(str(fault)) from fault


def metric_value(metrics: str, name: str) -> float:
    """Return the value of a metric without labels; 0 if the metric is absent."""
    match = re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)
    return float(match[1]) if match else 0.0
