"""Quotas of one namespace: each becomes a queue below `root` with the name of the namespace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from extender.api.keys import ROOT_QUEUE
from extender.api.quantities import at_most
from extender.api.quotas import ElasticQuota, ResourceQuota
from extender.domain.quotas.amounts import QuotaAmounts, amounts_of
from extender.domain.quotas.names import queue_name
from extender.domain.quotas.records import QuotaFault, QuotaQueue, QuotaSource, Written

ELASTIC_VERSION, ELASTIC_KIND = "scheduling.x-k8s.io/v1alpha1", "ElasticQuota"
RESOURCE_VERSION, RESOURCE_KIND = "v1", "ResourceQuota"
_REQUESTS = "requests."
_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")  # these mean requests, as requests.cpu does

Found = Iterator[QuotaQueue | QuotaFault]


def queue_of_elastic_quota(quota: ElasticQuota) -> Found:
    source = QuotaSource.of(ELASTIC_VERSION, ELASTIC_KIND, quota.metadata)
    return _found(source, amounts_of(quota.spec.min, quota.spec.max))


def queue_of_resource_quotas(quotas: Sequence[ResourceQuota]) -> Found:
    """`quotas`: all of one namespace, the first by name first. All of them hold at once, so of each resource
    the smallest amount counts. Those with scopes are about some pods only, and are left out."""
    whole = [each for each in quotas if not each.spec.scopes and not each.spec.scope_selector]
    read = [(each, amounts_of(None, _requests(each.spec.hard or {}))) for each in whole]
    for quota, amounts in read:
        yield from _faults(QuotaSource.of(RESOURCE_VERSION, RESOURCE_KIND, quota.metadata), amounts)
    if read:
        first = QuotaSource.of(RESOURCE_VERSION, RESOURCE_KIND, whole[0].metadata)
        smallest = _smallest(amounts.capability for _, amounts in read)
        kept = any(amounts.faults for _, amounts in read)
        yield _queue(first, QuotaAmounts(smallest), kept)


def _found(source: QuotaSource, amounts: QuotaAmounts) -> Found:
    yield from _faults(source, amounts)
    yield _queue(source, amounts, bool(amounts.faults))


def _faults(source: QuotaSource, amounts: QuotaAmounts) -> Iterator[QuotaFault]:
    return (QuotaFault(source, f"spec.{field}", why) for field, why in amounts.faults)


def _queue(source: QuotaSource, amounts: QuotaAmounts, kept: bool) -> QuotaQueue:
    return QuotaQueue(
        name=queue_name(source.namespace),
        source=source,
        parent=ROOT_QUEUE,
        capability=amounts.capability,
        guarantee=amounts.guarantee,
        most_groups=amounts.most_groups,
        namespaces=(source.namespace,),
        kept=kept,
    )


def _requests(hard: Mapping[str, Any]) -> dict[str, Any]:
    """What is limited of requests, by resource. Limits, counts of objects and storage are not the
    scheduler's."""
    plain = {name: hard[name] for name in _PLAIN if name in hard}
    named = {name.removeprefix(_REQUESTS): hard[name] for name in hard if name.startswith(_REQUESTS)}
    return plain | named


def _smallest(amounts: Iterable[Written]) -> Written:
    found: Written = {}
    for each in amounts:
        for name, amount in each.items():
            if name not in found or at_most(amount, 1000) < at_most(found[name], 1000):
                found[name] = amount
    return found
