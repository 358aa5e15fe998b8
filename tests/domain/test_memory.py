"""Memory use by names from tenants: next to nothing stays once their objects are gone."""

import gc
import tracemalloc
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from extender.api import keys
from extender.domain.model.shapes import Term
from tests.domain.builders import HOSTNAME, anti_affinity, group, node, pod, queue
from tests.domain.world import World
from tests.rows import each_of

# Pods, how many of them are there at the same time, and how many may be remembered, by what counts shapes
# from round to round.
TIMES, AT_ONCE, FEW = 220, 11, 150
NAME = "gone-with-its-pod"


def texts_reachable_from(*roots: object) -> set[str]:
    """Return the texts with `NAME` that are reachable from these objects."""
    texts, known, to_see = set[str](), dict[int, object](), list(roots)
    while to_see:
        each = to_see.pop()
        if id(each) in known or isinstance(each, type | ModuleType | FunctionType):
            continue
        known[id(each)] = each
        if isinstance(each, str) and NAME in each:
            texts.add(each)
        to_see.extend(gc.get_referents(each))
        if isinstance(each, dict):  # of texts the collector does not ask for the keys
            to_see.extend(each)
        if isinstance(each, msgspec.Struct):  # nor for anything of those that it leaves out
            to_see.extend(getattr(each, field) for field in each.__struct_fields__)
    return texts


@each_of(
    lambda text: {"queue": text},  # queue
    lambda text: {"group": text},  # group
    lambda text: {"group": "g", "role": text},  # role
    lambda text: {"owner": text},  # owner
    lambda text: {"labels": {text: "a", "b": text}},  # labels
    lambda text: {"more": {f"example.com/{text}": "1"}},  # resources
    lambda text: {"selector": {"a": text}},  # selector
    lambda text: {"affinity": anti_affinity(a=text)},  # terms
    lambda text: {"annotations": {keys.MIN_MEMBER: text, keys.RUN_TIME: text, keys.CHECKPOINT: text}},  # run
    lambda text: {"annotations": {keys.QUEUE_UID: f"{text}/uid-p", keys.MAY_USE: f"{text}/Pod"}},  # notes
)
def test_names_in_deleted_pods_are_forgotten(named: Callable[[str], dict[str, Any]]) -> None:
    cluster = World(node("n"), queue("q"), group("g", 9), auto_groups=True).settle()
    for first in range(0, TIMES, AT_ONCE):
        cluster.add([pod(f"p{n}", **named(f"{NAME}-{n}")) for n in range(first, first + AT_ONCE)]).settle()
        cluster.delete(*cluster.pods).settle()
    gc.collect()  # in a process as large as that of all tests it comes rarely by itself
    assert len(texts_reachable_from(cluster.ledger, cluster.decisions)) <= FEW


def test_few_long_selectors_of_terms_are_cached() -> None:
    tracemalloc.start()
    for number in range(300):
        term = Term(HOSTNAME, None, b'{"matchLabels":{"a":"%d%s"}}' % (number, b"x" * 50_000))
        assert term.label_selector is not None
    reserved, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reserved < 8_000_000


def test_few_of_a_pods_thousands_of_resources_are_stored() -> None:
    """It waits, and says how many there are."""
    many = {f"example.com/{number}": "1" for number in range(4000)}
    cluster = World(node("n"), queue("q"), pod("p", queue="q", more=many)).settle()
    (group_,) = cluster.decisions.groups.values()
    assert cluster.figures("pod:p") == ["4001", "256"]
    (record,) = cluster.ledger.registry.groups[group_.key].pods.values()
    assert len(record.shape.requests) == 256
    assert {"cpu", "pods"} <= record.shape.requests.keys()
