"""Bodies of the scheduler and the API server, with random errors, which follow from the seed."""

import copy
import json
from random import Random
from typing import Any

from tests.e2e.harness import objects

Json = Any
VERBS = ("filter", "prioritize", "bind", "preempt")
REVIEWS = ("queues", "podgroups", "jobs", "pods")
NAMESPACE = "default"
_MAX_TEXT = 500  # characters of a text that may still be repeated
INVALID_VALUES: tuple[Json, ...] = (
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


def verb_body(rng: Random, verb: str) -> Json:
    """Return the body of a call as the scheduler writes it."""
    names = [f"node-{rng.randrange(1, 8)}" for _ in range(rng.randrange(4))]
    pod = _pod(rng)
    metadata = pod["metadata"]
    if verb == "bind":
        binding = {"PodName": metadata["name"], "PodNamespace": NAMESPACE, "PodUID": metadata["uid"]}
        return {**binding, "Node": rng.choice([*names, "node-1"])}
    if verb == "preempt":
        victims = {name: {"Pods": [{"UID": metadata["uid"]}], "NumPDBViolations": 0} for name in names}
        return {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    return {"Pod": pod, "Nodes": None, "NodeNames": names}


def review_body(rng: Random, kind: str) -> Json:
    """Return the body of a review as the API server writes it."""
    obj = _reviewed_object(rng, kind)
    operation = rng.choice(("CREATE", "UPDATE", "DELETE", "CONNECT"))
    request = {
        "uid": f"{rng.getrandbits(64):x}",
        "operation": operation,
        "kind": {"group": "", "version": "v1", "kind": obj.get("kind", "")},
        "name": obj["metadata"]["name"],
        "namespace": NAMESPACE,
        "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
        "object": None if operation == "DELETE" else obj,
        "oldObject": None if operation == "CREATE" else _reviewed_object(rng, kind),
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def with_errors(rng: Random, body: Json) -> bytes:
    """Return JSON of the body with up to five changed values, sometimes with changed bytes."""
    body = copy.deepcopy(body)
    for _ in range(rng.randrange(6)):
        _change_somewhere(rng, body)
    data = json.dumps(body, ensure_ascii=rng.random() < 0.8).encode(errors="surrogatepass")
    return _with_changed_bytes(rng, data) if rng.random() < 0.15 else data


def _pod(rng: Random) -> Json:
    group = rng.choice((None, "g", f"g{rng.randrange(1000)}"))
    scheduler = rng.choice(("muster", "volcano", "default-scheduler"))
    pod = objects.pod(
        f"p{rng.randrange(1000)}",
        namespace=NAMESPACE,
        group=group,
        cpu=rng.choice(("1", "100m", "9E")),
        scheduler=scheduler,
    )
    pod["metadata"]["uid"] = f"{rng.getrandbits(32):x}"
    return pod


def _reviewed_object(rng: Random, kind: str) -> Json:
    name = f"a{rng.randrange(100)}"
    if kind == "queues":
        return objects.queue(name, weight=rng.randrange(1, 9), parent=rng.choice(("root", "default", name)))
    if kind == "podgroups":
        return objects.pod_group(name, namespace=NAMESPACE, min_member=rng.randrange(1, 9))
    if kind == "jobs":
        spec = {"minAvailable": 1, "queue": "default", "tasks": [{"name": "t", "replicas": 1}]}
        return {"kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    pod = _pod(rng)
    pod["metadata"]["annotations"] = {objects.QUEUE_NAME: "default", objects.GROUP_NAME: name}
    return pod


def _change_somewhere(rng: Random, value: Json) -> None:
    """Change a value at a random place in `value`."""
    while isinstance(value, dict | list) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.8:
            value = value[key]
        else:
            return _change_one(rng, value, key)


def _change_one(rng: Random, container: Json, key: Any) -> None:
    choice = rng.randrange(5)
    if choice == 0:
        del container[key]
    elif choice == 1 and isinstance(container, dict):
        container[rng.choice((key.swapcase(), key + " ", "x" * 300, ""))] = container.pop(key)
    elif choice == 2:
        container[key] = _nested(rng.choice((3, 50, 400)), as_lists=rng.random() < 0.5)
    elif choice == 3 and len(json.dumps(container[key])) < _MAX_TEXT:
        container[key] = [container[key]] * rng.randrange(1000)
    else:
        container[key] = copy.deepcopy(rng.choice(INVALID_VALUES))


def _nested(levels: int, *, as_lists: bool) -> Json:
    value: Json = "bottom"
    for _ in range(levels):
        value = [value] if as_lists else {"a": value}
    return value


def _with_changed_bytes(rng: Random, data: bytes) -> bytes:
    offset = rng.randrange(len(data) + 1)
    choice = rng.randrange(4)
    if choice == 0:
        return data[:offset]
    if choice == 1:
        return data[:offset] + rng.randbytes(3) + data[offset:]
    if choice == 2:
        return data[:offset] + b"[" * 100_000
    return data[offset:] + data[:offset]
