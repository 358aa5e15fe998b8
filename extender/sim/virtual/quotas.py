"""Queues from quotas in virtual time: made at the beginning, as Muster makes them in a cluster."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from extender.api.configuration import Configuration
from extender.api.keys import ROOT_QUEUE
from extender.api.quotas import ElasticQuota, ElasticQuotaTree
from extender.domain.quotas.plan import Quotas, plan_of
from extender.domain.quotas.records import QuotaQueue
from extender.domain.quotas.steps import annotations_of, spec_of
from extender.sim.apiserver.kinds import ELASTIC_QUOTA_TREES, ELASTIC_QUOTAS, QUEUES, Json, ResourceKind
from extender.sim.files.creation import Creation


class QuotaQueues(NamedTuple):
    """`namespaces`: by name, the queue that each enters. `notes`: what is wrong with quotas, which costs
    only the part that is."""

    namespaces: Mapping[str, str]
    notes: list[str]


def make_queues(creation: Creation) -> QuotaQueues:
    """Of the quotas among the objects; a queue that is there by the name of one stays as it is."""
    quotas = Quotas(
        _all(creation, ELASTIC_QUOTA_TREES, ElasticQuotaTree), _all(creation, ELASTIC_QUOTAS, ElasticQuota)
    )
    plan = plan_of(quotas, Configuration().max_queue_depth)
    wanted = plan.queues.values()
    taken = {obj["metadata"]["name"] for obj, _ in creation.objects if obj["kind"] == QUEUES.name}
    notes = [f"{each.source}: {each}" for each in plan.faults]
    left = (each for each in wanted if each.name in taken)
    notes += [f"{each.source}: queue {each.name!r} exists, and stays as it is" for each in left]
    for queue in _possible(wanted, taken):
        creation.add(_object(queue), str(queue.source))
    return QuotaQueues(plan.namespaces, notes)


def _all(creation: Creation, kind: ResourceKind, type_: type[Any]) -> list[Any]:
    name = kind.api_version, kind.name
    found = (obj for obj, _ in creation.objects if (obj["apiVersion"], obj["kind"]) == name)
    return [msgspec.json.decode(msgspec.json.encode(obj), type=type_) for obj in found]


def _possible(queues: Iterable[QuotaQueue], taken: set[str]) -> Iterator[QuotaQueue]:
    """Nothing is made below a queue that was not made of a quota; parents come first."""
    made = {ROOT_QUEUE}
    for each in queues:
        if not each.kept and each.name not in taken and each.parent in made:
            made.add(each.name)
            yield each


def _object(queue: QuotaQueue) -> Json:
    meta = {"name": queue.name, "annotations": annotations_of(queue)}
    return {"apiVersion": QUEUES.api_version, "kind": QUEUES.name, "metadata": meta, "spec": spec_of(queue)}
