"""The rules that an owner gives a queue, besides its amounts: small frozen records."""

from collections.abc import Mapping

import msgspec

from extender.api.objects import Toleration
from extender.domain.model.resources import Resources


class Limit(msgspec.Struct, frozen=True, gc=False):
    """How much may run at the same time; None: no limit."""

    groups: int | None = None
    pods: int | None = None


class RunningLimits(msgspec.Struct, frozen=True, gc=False):
    queue: Limit = Limit()
    """Of all groups of the queue."""
    user: Limit = Limit()
    """Of the groups of each user."""
    namespace: Limit = Limit()
    """Of the groups of each namespace."""


class PreemptionRules(msgspec.Struct, frozen=True, gc=False):
    within_queue: bool = True
    """Whether groups of higher priority may take room from running ones of the same queue."""
    unmanaged: bool = True
    """Whether its groups may take room from pods of lower priority that are not Muster's."""
    min_runtime: float = 0.0
    """How long its groups have run, in seconds, before others may take their room."""


class Flavor(msgspec.Struct, frozen=True):
    """A part of a queue's amounts, on nodes with certain labels."""

    name: str
    node_labels: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    """Taints of its nodes that are tolerated for the pods."""
    capability: Resources | None = None
    deserved: Resources | None = None
