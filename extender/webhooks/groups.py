"""PodGroups of all three APIs: their defaults, whether their queue takes them, and who may use it."""

from collections.abc import Callable

from extender.api.admission import UPDATE, ReviewRequest
from extender.api.reviewed import NewOtherGroup, NewPodGroup
from extender.domain.admission.access import pods_not_judged, subject
from extender.domain.admission.defaults import group_defaults
from extender.domain.admission.faults import Fault
from extender.domain.admission.pods import judge_topologies
from extender.domain.admission.submission import (
    Destination,
    destination_of_group,
    destination_of_other_group,
    judge_entry,
)
from extender.domain.cache.ledger import Ledger
from extender.domain.model.local_queue_label import local_queue_label
from extender.domain.model.records import GroupKey
from extender.webhooks.entry import EntryRules
from extender.webhooks.reviews import ReviewOutcome, read

_OURS = "system:serviceaccount:kube-muster:"  # makes the groups of pods that name none


class GroupRules:
    """`entry`: makes the rules of queues for one review."""

    def __init__(self, ledger: Ledger, entry: Callable[[], EntryRules]) -> None:
        self._ledger = ledger
        self._entry = entry

    def fill_in(self, request: ReviewRequest) -> ReviewOutcome:
        group = read(request.object, NewPodGroup)
        user = request.user_info.username
        maker = "" if user.startswith(_OURS) else user
        return ReviewOutcome(patch=group_defaults(group, _namespace(request, group), maker, self._ledger))

    def judge(self, request: ReviewRequest) -> ReviewOutcome:
        group = read(request.object, NewPodGroup)
        topologies = list(judge_topologies(group))
        if request.operation == UPDATE and _names_alike(read(request.old_object, NewPodGroup), group):
            return ReviewOutcome(topologies)
        return ReviewOutcome([*self._judge_queue(group, request), *topologies])

    def _judge_queue(self, group: NewPodGroup, request: ReviewRequest) -> list[Fault]:
        entry, namespace = self._entry(), _namespace(request, group)
        to = entry.destination(
            lambda cluster: destination_of_group(group.metadata, namespace, group.spec.queue, cluster)
        )
        faults = entry.judge(to, judge_entry, subject(request.user_info))
        if faults or request.operation == UPDATE or not entry.is_restricted(to):
            return faults
        return self._judge_pods_before(group, to, request)

    def _judge_pods_before(self, group: NewPodGroup, to: Destination, request: ReviewRequest) -> list[Fault]:
        """Faults for pods that already wait for a new group of a restricted queue: when they were created, it
        was not known that they would use it."""
        there = self._ledger.members(GroupKey(f"{_namespace(request, group)}/{group.metadata.name}"))
        names = sorted(pod.name for pod in there if pod.waiting and not pod.auto)
        return [pods_not_judged(to, names)] if names else []

    def judge_other(self, request: ReviewRequest) -> ReviewOutcome:
        """A PodGroup of scheduler-plugins or of Kubernetes: Muster judges only its queue."""
        entry = self._entry()
        to = self._destination_of_other(entry, read(request.object, NewOtherGroup), request)
        if to is None:
            return ReviewOutcome()
        if request.operation == UPDATE:
            before = self._destination_of_other(entry, read(request.old_object, NewOtherGroup), request)
            if before is not None and before.queue == to.queue:
                return ReviewOutcome()
        return ReviewOutcome(entry.judge(to, judge_entry, subject(request.user_info)))

    def _destination_of_other(
        self, entry: EntryRules, group: NewOtherGroup, request: ReviewRequest
    ) -> Destination | None:
        return entry.destination(
            lambda cluster: destination_of_other_group(group, request.namespace, cluster)
        )


def _names_alike(before: NewPodGroup, now: NewPodGroup) -> bool:
    """Whether both name the same queue, by the same LocalQueue if by any."""
    labels = [local_queue_label(each.metadata) for each in (before, now)]
    return before.spec.queue == now.spec.queue and labels[0] == labels[1]


def _namespace(request: ReviewRequest, group: NewPodGroup) -> str:
    return request.namespace or group.metadata.namespace
