"""Jobs and pods: their defaults, whether their queue takes them, and who may use it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from extender.api.admission import RESIZE, UPDATE, ReviewRequest
from extender.api.reviewed import Job, NewPod, VolcanoJob
from extender.domain.admission.access import asked_about_pod, asked_about_template, subject
from extender.domain.admission.defaults import pod_defaults
from extender.domain.admission.faults import Fault
from extender.domain.admission.pods import judge_budgets
from extender.domain.admission.resizes import growth, judge_growth
from extender.domain.admission.submission import (
    Destination,
    destination_of_group,
    destination_of_pod,
    judge_entry,
    judge_job_entry,
)
from extender.domain.cache.ledger import Ledger
from extender.webhooks.entry import Entry, EntryRules
from extender.webhooks.reviews import ReviewOutcome, read

_VOLCANO = "batch.volcano.sh"
_TEMPLATE = "spec.template."


class WorkRules:
    """`entry`: makes the rules of queues for one review. `marked`: pods get the marks that the install with
    the cluster's own scheduler needs."""

    def __init__(
        self,
        ledger: Ledger,
        entry: Callable[[], EntryRules],
        schedulers: frozenset[str],
        marked: bool,
    ) -> None:
        self._ledger = ledger
        self._entry = entry
        self._schedulers = schedulers
        self._marked = marked

    # ---- Jobs

    def judge_job(self, request: ReviewRequest) -> ReviewOutcome:
        if request.kind.group == _VOLCANO:
            return self._judge_volcano_job(request)
        job = read(request.object, Job)
        pod = _placed(job.pod, request)
        to = self._destination(pod, _TEMPLATE)
        if to is None or (
            _is_update(request) and self._was_there(read(request.old_object, Job).pod, to, request)
        ):
            return ReviewOutcome()
        return ReviewOutcome(
            self._entry().judge(to, self._job_entry, *asked_about_template(pod, request.user_info))
        )

    def _judge_volcano_job(self, request: ReviewRequest) -> ReviewOutcome:
        """Only new ones: the queue of a Volcano Job cannot change, and Volcano judges everything else."""
        job = read(request.object, VolcanoJob)
        theirs = job.spec.scheduler_name and job.spec.scheduler_name not in self._schedulers
        if _is_update(request) or theirs:
            return ReviewOutcome()
        entry, namespace = self._entry(), _namespace(request, job)
        to = entry.destination(
            lambda cluster: destination_of_group(job.metadata, namespace, job.spec.queue, cluster)
        )
        return ReviewOutcome(entry.judge(to, self._job_entry, subject(request.user_info)))

    # ---- pods

    def fill_in_pod(self, request: ReviewRequest) -> ReviewOutcome:
        if not self._ledger.owns(_placed(read(request.object, NewPod), request)):
            return ReviewOutcome()
        return ReviewOutcome(patch=pod_defaults(read(request.object, dict[str, Any]), self._marked))

    def judge_pod(self, request: ReviewRequest) -> ReviewOutcome:
        pod = _placed(read(request.object, NewPod), request)
        if not self._ledger.owns(pod):
            return ReviewOutcome()
        to = self._destination(pod)
        if request.sub_resource == RESIZE:
            return ReviewOutcome(self._judge_resize(pod, to, request) if to and pod.spec.node_name else [])
        if _is_update(request):
            was_there = to and self._was_there(read(request.old_object, NewPod), to, request)
            return (
                ReviewOutcome()
                if to is None or was_there
                else ReviewOutcome(self._judge_pod_queue(pod, to, request))
            )
        budgets = list(judge_budgets(pod))
        return ReviewOutcome(budgets or (self._judge_pod_queue(pod, to, request) if to else []))

    def _judge_resize(self, pod: NewPod, to: Destination, request: ReviewRequest) -> list[Fault]:
        """Faults of a resize, for a pod on a node: a waiting pod is judged when it is to start."""
        more, entry = growth(read(request.old_object, NewPod), pod), self._entry()
        if not more:
            return []
        faults = entry.judge(to, partial(judge_growth, more))
        return faults or entry.judge_use(to, *asked_about_template(pod, request.user_info))

    def _judge_pod_queue(self, pod: NewPod, to: Destination, request: ReviewRequest) -> list[Fault]:
        return self._entry().judge(to, judge_entry, *asked_about_pod(pod, request.user_info))

    def _destination(self, pod: NewPod, path: str = "") -> Destination | None:
        if not self._ledger.owns(pod):
            return None
        return self._entry().destination(lambda cluster: destination_of_pod(pod, cluster, path))

    def _was_there(self, before: NewPod, to: Destination, request: ReviewRequest) -> bool:
        was = self._destination(_placed(before, request))
        return was is not None and was.queue == to.queue

    @property
    def _job_entry(self) -> Entry:
        return partial(judge_job_entry, tree=self._ledger.queue_tree)


def _is_update(request: ReviewRequest) -> bool:
    return request.operation == UPDATE


def _namespace(request: ReviewRequest, job: VolcanoJob) -> str:
    return request.namespace or job.metadata.namespace


def _placed(pod: NewPod, request: ReviewRequest) -> NewPod:
    """The pod with the namespace that it will be in: a template does not name one."""
    namespace = request.namespace or pod.metadata.namespace
    return replace(pod, metadata=replace(pod.metadata, namespace=namespace))
