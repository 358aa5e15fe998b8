"""How groups come into queues: by what they name, by a LocalQueue, or by their namespace."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from extender.domain.cache.groups import Group
from extender.domain.cache.keyed_sets import take_out
from extender.domain.cache.local_queues import LocalQueues
from extender.domain.jobs.job_record import JobRecord
from extender.domain.model.local_queue_label import LocalQueueLabel
from extender.domain.model.queue_of_group import explicit_queue, queue_of_podgroup, queue_of_pods
from extender.domain.model.records import GroupKey
from extender.domain.model.selectors import Labels
from extender.domain.queues.local_queue_records import LocalQueueRecord


class Routes:
    def __init__(self) -> None:
        self._named_queues: dict[str, str] = {}  # by namespace: the queue that its annotation names
        self._quota_queues: Mapping[str, str] = {}  # by namespace: the queue that its quota gives it
        self.local_queues = LocalQueues()
        self._namespace_labels: dict[str, Labels] = {}
        self._groups_in: defaultdict[str, set[GroupKey]] = defaultdict(set)

    # ---- changes

    def set_namespace(self, namespace: str, queue: str, labels: Labels) -> bool:
        """True if anything that matters changed."""
        before = self._named_queues.get(namespace, ""), self.labels_of(namespace)
        if before == (queue, labels):
            return False
        self._named_queues[namespace] = queue
        self._namespace_labels[namespace] = labels
        self.local_queues.note_namespace(namespace)
        return True

    def drop_namespace(self, namespace: str) -> bool:
        """True if anything that matters changed."""
        changed = self.set_namespace(namespace, "", {})
        self._named_queues.pop(namespace, None)
        self._namespace_labels.pop(namespace, None)
        return changed

    def set_quota_namespaces(self, queues: Mapping[str, str]) -> set[str]:
        """The queues that quotas give to namespaces; returns those for which that matters and has changed."""
        changed = {name for name, _ in queues.items() ^ self._quota_queues.items()}
        self._quota_queues = dict(queues)
        return {name for name in changed if not self._named_queues.get(name)}

    def follow(self, group: Group) -> None:
        """Note what a group names, so that it is found when that changes."""
        self._groups_in[group.namespace].add(group.key)
        self.local_queues.follow(group.key, group.namespace, _label_of(group))

    def forget(self, group: Group) -> None:
        take_out(self._groups_in, group.namespace, group.key)
        self.local_queues.follow(group.key, group.namespace, None)

    # ---- reading

    def namespace_queue(self, namespace: str) -> str:
        """The queue of what names none in a namespace, or empty: its annotation comes before its quota."""
        return self._named_queues.get(namespace) or self._quota_queues.get(namespace, "")

    def queue_of_job(self, job: JobRecord) -> str:
        """The queue that a job enters; empty if it names none, and nothing else does for it, or if its label
        is Kueue's own: a job that two start and suspend comes to no rest."""
        label = job.local_queue
        local = self.local_queues.named(job.namespace, label) if label is not None else None
        if label is not None and local is None:
            return ""
        leads_to = local.leads_to if local is not None else ""
        return job.queue or leads_to or self.namespace_queue(job.namespace)

    def labels_of(self, namespace: str) -> Labels:
        return self._namespace_labels.get(namespace, {})

    def groups_in(self, namespace: str) -> Collection[GroupKey]:
        return self._groups_in.get(namespace, ())

    def label_of(self, group: Group) -> LocalQueueLabel | None:
        """The label by which a group comes into its queue; None if no LocalQueue leads it there."""
        return _label_of(group) if self.local_queue_of(group) is not None else None

    def local_queue_of(self, group: Group) -> LocalQueueRecord | None:
        """The LocalQueue by which a group comes into its queue, whether it exists or not; None if the group
        names none, or names its queue itself."""
        label = _label_of(group)
        if label is None or _named_by(group):
            return None
        return self.local_queues.named(group.namespace, label)

    def queue_of(self, group: Group) -> str:
        """The queue of a group; after its PodGroup is gone, still the queue that it named."""
        namespace_queue = self.namespace_queue(group.namespace)
        local = self.local_queue_of(group)
        queue_of = queue_of_pods if group.last_record is None else queue_of_podgroup
        return queue_of(_named_by(group), namespace_queue, local.leads_to if local is not None else "")


def _named_by(group: Group) -> str:
    """The queue that a group names itself; empty if it names none."""
    if group.last_record is not None:
        return explicit_queue(group.last_record.queue)
    if group.job is not None:
        return group.job.queue
    return next((pod.queue for pod in group.pods.values()), "")


def _label_of(group: Group) -> LocalQueueLabel | None:
    if group.last_record is not None:
        return group.last_record.local_queue
    if group.job is not None:
        return group.job.local_queue
    return next((pod.local_queue for pod in group.pods.values()), None)
