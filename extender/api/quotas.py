"""Quota objects of other systems, from which queues are made: reduced to the fields that count.

Sources: `ElasticQuotaTree` is that of Alibaba Cloud's ACK (kube-queue, koord-queue), `ElasticQuota` that of
the Kubernetes SIG's scheduler-plugins, `ResourceQuota` Kubernetes' own. Amounts are left as they are written,
so that one that makes no sense costs its own node only.
"""

from enum import StrEnum
from typing import Any

import msgspec

from extender.api.objects.base import Meta, Wire

Amounts = dict[str, Any]


class QuotaKind(StrEnum):
    """The kinds that queues are made from, as `--quota-sources` names them."""

    ELASTIC_QUOTA_TREE = "elasticquotatree"
    ELASTIC_QUOTA = "elasticquota"
    RESOURCE_QUOTA = "resourcequota"


class QuotaNode(Wire, frozen=True):
    """A node of the tree."""

    name: str = ""
    min: Amounts | None = None  # what it is guaranteed
    max: Amounts | None = None  # the most that it may use; a resource that is absent has no limit
    namespaces: list[str] | None = None  # whose pods count to it; of leaves only
    children: list[msgspec.Raw] | None = None  # nodes again, read one by one


class ElasticQuotaTreeSpec(Wire, frozen=True):
    root: msgspec.Raw = msgspec.Raw()


class ElasticQuotaTree(Wire, frozen=True):
    """scheduling.sigs.k8s.io/v1beta1; counts in kube-system only."""

    metadata: Meta
    spec: ElasticQuotaTreeSpec = ElasticQuotaTreeSpec()


class ElasticQuotaSpec(Wire, frozen=True):
    min: Amounts | None = None
    max: Amounts | None = None


class ElasticQuota(Wire, frozen=True):
    """scheduling.x-k8s.io/v1alpha1; for its namespace."""

    metadata: Meta
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


class ResourceQuotaSpec(Wire, frozen=True):
    hard: Amounts | None = None
    scopes: list[str] | None = None
    scope_selector: Any = None


class ResourceQuota(Wire, frozen=True):
    """Kubernetes' own, v1. One with scopes is about some of the namespace's pods only."""

    metadata: Meta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
