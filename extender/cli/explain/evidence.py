"""What objects of the API server show of why something waits, each kind read once and only when asked for.

A submitter may read pods and PodGroups of a namespace; queues, namespaces and the groups of others perhaps.
What may not be read is noted, with what is missing for it, and the rest is shown all the same.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from extender.api.objects import Namespace, Pod
from extender.cli.observed import ObservedGroup, ObservedQueue
from extender.domain.model.ownership import group_name, own_queue
from extender.domain.model.queue_of_group import namespace_queue, queue_of_podgroup, queue_of_pods
from extender.kube.errors import Forbidden, NotFound
from extender.kube.reader import Reader
from extender.kube.resources import NAMESPACES, POD_GROUPS, PODS, QUEUES

T = TypeVar("T")

NO_QUEUES = (
    "Shares and limits of queues are not shown: you may not read queues. Queues belong to no namespace, so it"
    " takes a ClusterRoleBinding to the role kube-muster-view, or to another that may get and list them."
)
NO_OTHER_GROUPS = "Groups of other namespaces are not shown: you may not list podgroups there."
NO_PODS = "Members are not shown: you may not list pods in this namespace."


class Evidence:
    """`namespace` is the one that the question is about; empty means all."""

    def __init__(self, reader: Reader, namespace: str) -> None:
        self._reader = reader
        self.namespace = namespace
        self.notes: list[str] = []

    @cached_property
    def queues(self) -> dict[str, ObservedQueue] | None:
        """By name; None where they may not be read."""
        found = self._allowed(lambda: self._reader.list(QUEUES, "", ObservedQueue), NO_QUEUES)
        return None if found is None else {queue.name: queue for queue in found}

    def queue(self, name: str) -> ObservedQueue | None:
        return (self.queues or {}).get(name)

    @cached_property
    def groups(self) -> list[ObservedGroup]:
        """Of all namespaces where that is allowed, else of this one; the older first."""
        everywhere = self._allowed(lambda: self._reader.list(POD_GROUPS, "", ObservedGroup), NO_OTHER_GROUPS)
        if everywhere is None:
            here = self._allowed(lambda: self._reader.list(POD_GROUPS, self.namespace, ObservedGroup))
            everywhere = here if self.namespace and here else []
        return sorted(everywhere, key=lambda each: (each.metadata.creation_timestamp or "", each.key))

    def group(self, name: str) -> ObservedGroup | None:
        """None where there is none of this name."""
        try:
            return self._reader.get(POD_GROUPS, self.namespace, name, ObservedGroup)
        except NotFound:
            return None

    @cached_property
    def pods(self) -> list[Pod] | None:
        """Of this namespace; None where they may not be read."""
        return self._allowed(lambda: self._reader.list(PODS, self.namespace, Pod), NO_PODS)

    @cached_property
    def waiting_pods(self) -> list[Pod]:
        """Those of this namespace that are not on a node yet; none where they may not be read."""
        found = self._allowed(lambda: self._reader.list(PODS, self.namespace, Pod, "status.phase=Pending"))
        return [pod for pod in found or () if not pod.spec.node_name]

    def members(self, group: ObservedGroup) -> list[Pod] | None:
        """None where they cannot be known."""
        if group.namespace != self.namespace or self.pods is None:
            return None
        return [pod for pod in self.pods if group_name(pod) == group.name]

    def queue_of(self, group: ObservedGroup) -> str:
        """As Muster reads it, where the namespace may be read."""
        return queue_of_podgroup(group.spec.queue, self._queue_of_namespace(group.namespace))

    def queue_of_pod(self, pod: Pod) -> str:
        """Of a pod without a group."""
        return queue_of_pods(own_queue(pod), self._queue_of_namespace(pod.metadata.namespace))

    def _queue_of_namespace(self, name: str) -> str:
        """Empty where it names none, or where that may not be read."""
        return self._namespace_queues.get(name, "")

    @cached_property
    def _namespace_queues(self) -> dict[str, str]:
        found = self._allowed(lambda: self._reader.list(NAMESPACES, "", Namespace))
        if found is None:
            own = self._allowed(lambda: self._reader.get(NAMESPACES, "", self.namespace, Namespace))
            found = [own] if own else []
        return {each.metadata.name: namespace_queue(each) for each in found}

    def _allowed(self, read: Callable[[], T], note: str = "") -> T | None:
        try:
            return read()
        except (Forbidden, NotFound):  # NotFound: the kind, or a namespace, does not exist
            if note:
                self.notes.append(note)
            return None
