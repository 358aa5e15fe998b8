"""Bodies: what the scheduler and the API server send, with something wrong in it.

Everything comes from the generator that is given, so a seed brings it back.
"""

import copy
import json
from random import Random
from typing import Any

from tests.e2e.harness import objects

Json = Any
VERBS = ("filter", "prioritize", "bind", "preempt")
REVIEWS = ("queues", "podgroups", "jobs", "pods")
NAMESPACE = "default"
_LARGE = 500  # characters: what is larger is not multiplied
JUNK: tuple[Json, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    -(2**63) - 1,
    10**40,
    1e308,
    0.1,
    "",
    " ",
    "9E",
    "-1",
    "1e999",
    "NaN",
    "\x00",
    "\ud800",
    "ÿ\u202e\U0001f600",
    "a" * 300,
    "x" * 70_000,
    "../../etc",
    [],
    {},
    [[]] * 100,
    {"": None},
    {"a" * 300: "b"},
)


def verb_body(dice: Random, verb: str) -> Json:
    """Return a body of a verb as the scheduler writes it."""
    names = [f"node-{dice.randrange(1, 8)}" for _ in range(dice.randrange(4))]
    pod = _pod(dice)
    metadata = pod["metadata"]
    if verb == "bind":
        whose = {"PodName": metadata["name"], "PodNamespace": NAMESPACE, "PodUID": metadata["uid"]}
        return {**whose, "Node": dice.choice([*names, "node-1"])}
    if verb == "preempt":
        victims = {name: {"Pods": [{"UID": metadata["uid"]}], "NumPDBViolations": 0} for name in names}
        return {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    return {"Pod": pod, "Nodes": None, "NodeNames": names}


def review_body(dice: Random, kind: str) -> Json:
    """Return a body of a review as the API server writes it."""
    made = _reviewed(dice, kind)
    operation = dice.choice(("CREATE", "UPDATE", "DELETE", "CONNECT"))
    request = {
        "uid": f"{dice.getrandbits(64):x}",
        "operation": operation,
        "kind": {"group": "", "version": "v1", "kind": made.get("kind", "")},
        "name": made["metadata"]["name"],
        "namespace": NAMESPACE,
        "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
        "object": None if operation == "DELETE" else made,
        "oldObject": None if operation == "CREATE" else _reviewed(dice, kind),
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def spoilt(dice: Random, body: Json) -> bytes:
    """Return the body with up to five changes, as JSON; now and then with a change of the bytes, too."""
    body = copy.deepcopy(body)
    for _ in range(dice.randrange(6)):
        _change(dice, body)
    data = json.dumps(body, ensure_ascii=dice.random() < 0.8).encode(errors="surrogatepass")
    return _cut(dice, data) if dice.random() < 0.15 else data


def _pod(dice: Random) -> Json:
    group = dice.choice((None, "g", f"g{dice.randrange(1000)}"))
    scheduler = dice.choice(("muster", "volcano", "default-scheduler"))
    made = objects.pod(
        f"p{dice.randrange(1000)}",
        namespace=NAMESPACE,
        group=group,
        cpu=dice.choice(("1", "100m", "9E")),
        scheduler=scheduler,
    )
    made["metadata"]["uid"] = f"{dice.getrandbits(32):x}"
    return made


def _reviewed(dice: Random, kind: str) -> Json:
    name = f"a{dice.randrange(100)}"
    if kind == "queues":
        return objects.queue(name, weight=dice.randrange(1, 9), parent=dice.choice(("root", "default", name)))
    if kind == "podgroups":
        return objects.pod_group(name, namespace=NAMESPACE, min_member=dice.randrange(1, 9))
    if kind == "jobs":
        spec = {"minAvailable": 1, "queue": "default", "tasks": [{"name": "t", "replicas": 1}]}
        return {"kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    pod = _pod(dice)
    pod["metadata"]["annotations"] = {objects.QUEUE_NAME: "default", objects.GROUP_NAME: name}
    return pod


def _change(dice: Random, at: Json) -> None:
    """Change a value at a random place below `at`."""
    while isinstance(at, dict | list) and at:
        key = dice.choice(list(at)) if isinstance(at, dict) else dice.randrange(len(at))
        if isinstance(at[key], dict | list) and at[key] and dice.random() < 0.8:
            at = at[key]
        else:
            return _change_one(dice, at, key)


def _change_one(dice: Random, at: Json, key: Any) -> None:
    how = dice.randrange(5)
    if how == 0:
        del at[key]
    elif how == 1 and isinstance(at, dict):
        at[dice.choice((key.swapcase(), key + " ", "x" * 300, ""))] = at.pop(key)
    elif how == 2:
        at[key] = _deep(dice.choice((3, 50, 400)), dice.random() < 0.5)
    elif how == 3 and len(json.dumps(at[key])) < _LARGE:
        at[key] = [at[key]] * dice.randrange(1000)
    else:
        at[key] = copy.deepcopy(dice.choice(JUNK))


def _deep(levels: int, lists: bool) -> Json:
    at: Json = "bottom"
    for _ in range(levels):
        at = [at] if lists else {"a": at}
    return at


def _cut(dice: Random, data: bytes) -> bytes:
    where = dice.randrange(len(data) + 1)
    how = dice.randrange(4)
    if how == 0:
        return data[:where]
    if how == 1:
        return data[:where] + dice.randbytes(3) + data[where:]
    if how == 2:
        return data[:where] + b"[" * 100_000
    return data[where:] + data[:where]
