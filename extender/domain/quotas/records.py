"""What is made of quotas: the queues that there should be, who enters them, and what is wrong."""

from typing import NamedTuple

import msgspec

from extender.api.objects.base import Meta
from extender.api.quantities import Quantity

Written = dict[str, Quantity]  # amounts as a Queue has them


class QuotaSource(NamedTuple):
    """The object that a queue is made from."""

    version: str  # its apiVersion
    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        """As the annotation of a queue names it."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @classmethod
    def of(cls, version: str, kind: str, meta: Meta) -> "QuotaSource":
        return cls(version, kind, meta.namespace, meta.name, meta.uid)


class QuotaFault(NamedTuple):
    """What people have to correct."""

    source: QuotaSource
    where: str  # the node and the field
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class QuotaQueue(msgspec.Struct, frozen=True, gc=False):
    """A queue as its quota wants it. What is not named here is left to the queue's own administrators."""

    name: str
    source: QuotaSource
    parent: str
    capability: Written = {}
    guarantee: Written = {}  # also what it deserves by name: a queue deserves what it is guaranteed
    most_groups: int | None = None  # how many groups may run at the same time; None: no limit
    namespaces: tuple[str, ...] = ()  # whose pods and groups enter it, sorted
    kept: bool = False  # its quota cannot be read: it stays as it is, and is not made


class QuotaPlan(msgspec.Struct, frozen=True):
    """`unsure`: sources of which a part cannot be read, so that a queue that they lack may still be meant."""

    queues: dict[str, QuotaQueue] = {}  # by name; parents before their children
    namespaces: dict[str, str] = {}  # which queue the pods and groups of a namespace enter
    faults: tuple[QuotaFault, ...] = ()
    unsure: frozenset[str] = frozenset()
