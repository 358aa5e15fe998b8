"""Run of a campaign, and the comparison of Muster's state before and after it."""

import json
import time
from collections.abc import Callable
from http.client import HTTPConnection

from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.fuzz.campaign import Campaign
from tests.fuzz.target import PATIENCE, Target

_WARM_UP = 0.2  # part of the requests before the first measurement
_SLACK_THREADS = 24  # ports keep some idle threads
_SLACK_MEGABYTES = 64


def reviewed(
    target: Target, requests: int, seconds: float, seed: int, report: Callable[[str], None]
) -> list[str]:
    """Return the violations. `report` is called with the counts."""
    campaign = Campaign(target, seed)
    began = time.monotonic()
    threads = target.threads()
    warm_up = int(requests * _WARM_UP)
    request_count = campaign.run(0, warm_up, began + seconds * _WARM_UP)
    megabytes = target.megabytes()
    request_count += campaign.run(warm_up, requests - warm_up, began + seconds)
    duration = time.monotonic() - began
    campaign.check_silent_callers()
    violations = campaign.findings.violations
    violations += _violations_after(target, threads, megabytes)
    for name, count in sorted(campaign.findings.counts.items()):
        report(f"{name:24} {count}")
    report(
        f"threads {threads} before, {target.threads()} after; {megabytes:.0f} MB, {target.megabytes():.0f} MB"
    )
    report(f"{request_count} requests in {duration:.0f} s, seed {seed}, {len(violations)} violations")
    return violations


def _violations_after(target: Target, threads: int, megabytes: float) -> list[str]:
    violations = []
    if (nodes := nodes_of_filter(target)) != ["node-1", "node-2"]:
        violations.append(f"filter answers {nodes}")
    probes = {path: _status(target, path) for path in ("/livez", "/readyz")}
    if (relayed := _proxy_answer_kinds(target)) != ["Status", "NodeList", "PodList"]:
        violations.append(f"the proxy answers {relayed}")
    violations += [f"{path} answers {status}" for path, status in probes.items() if status != 200]
    try:
        wait_for(lambda: target.threads() <= threads + _SLACK_THREADS, what="threads as before")
    except TimeoutError:
        violations.append(f"{target.threads()} threads, {threads} before")
    if (grown := target.megabytes() - megabytes) > _SLACK_MEGABYTES:
        violations.append(f"{grown:.0f} MB more than after the first requests")
    return violations


def nodes_of_filter(target: Target) -> list[str]:
    """Return the nodes in the answer to a filter call for a foreign pod; two are offered."""
    pod = objects.pod("plain", namespace="default", scheduler="another")
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": ["node-1", "node-2"]})
    caller = HTTPConnection("127.0.0.1", target.ports["verbs"], timeout=PATIENCE)
    try:
        caller.request("POST", "/v1/filter", body)
        names: list[str] = json.loads(caller.getresponse().read())["NodeNames"]
    finally:
        caller.close()
    return names


def _proxy_answer_kinds(target: Target) -> list[str]:
    """Return statuses of the proxy: without its secret, for a list of nodes, and for a list of pods."""
    paths = ("/wrong/api/v1/nodes", f"/{target.secret}/api/v1/nodes", f"/{target.secret}/api/v1/pods")
    caller = HTTPConnection("127.0.0.1", target.ports["view"], timeout=PATIENCE)
    kinds = []
    try:
        for path in paths:
            caller.request("GET", path)
            kinds.append(json.loads(caller.getresponse().read())["kind"])
    finally:
        caller.close()
    return kinds


def _status(target: Target, path: str) -> int:
    caller = HTTPConnection("127.0.0.1", target.ports["health"], timeout=PATIENCE)
    try:
        caller.request("GET", path)
        return caller.getresponse().status
    finally:
        caller.close()
