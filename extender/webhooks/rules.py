"""The table of paths, and the rules for queues and LocalQueues. Those for groups are in groups.py, for Jobs
and pods in work.py.
"""

from collections.abc import Callable
from typing import Any

from extender.api.admission import CREATE, DELETE, UPDATE, ReviewRequest
from extender.api.objects.queues import LocalQueue, Queue
from extender.domain.admission.access import subject
from extender.domain.admission.defaults import queue_defaults
from extender.domain.admission.queues import judge_deletion, judge_queue
from extender.domain.admission.submission import Destination
from extender.domain.cache.ledger import Ledger
from extender.webhooks.entry import EntryRules
from extender.webhooks.groups import GroupRules
from extender.webhooks.latest import Latest
from extender.webhooks.reviews import Path, ReviewOutcome, read, read_if_there
from extender.webhooks.work import WorkRules


def paths(
    queues: "QueueRules", local_queues: "LocalQueueRules", groups: GroupRules, work: WorkRules
) -> dict[str, Path]:
    return {
        "/queues/mutate": Path(queues.fill_in, (CREATE,), needs_sync=False),
        "/queues/validate": Path(queues.judge, (CREATE, UPDATE, DELETE)),
        "/localqueues/validate": Path(local_queues.judge, (CREATE, UPDATE)),
        "/podgroups/mutate": Path(groups.fill_in, (CREATE,), needs_sync=False),
        "/podgroups/validate": Path(groups.judge, (CREATE, UPDATE)),
        "/other-podgroups/validate": Path(groups.judge_other, (CREATE, UPDATE), optional=True),
        "/jobs/validate": Path(work.judge_job, (CREATE, UPDATE), optional=True),
        "/pods/mutate": Path(work.fill_in_pod, (CREATE,), needs_sync=False),
        "/pods/validate": Path(work.judge_pod, (CREATE, UPDATE), optional=True),
    }


class QueueRules:
    """`latest`: reads queues as they are now, for one review. `max_depth`: how many levels of queues there
    may be below root."""

    def __init__(self, ledger: Ledger, latest: Callable[[], Latest], max_depth: int) -> None:
        self._ledger = ledger
        self._latest = latest
        self._max_depth = max_depth

    def fill_in(self, request: ReviewRequest) -> ReviewOutcome:
        has_weight = "weight" in (read(request.object, dict[str, Any]).get("spec") or {})
        return ReviewOutcome(patch=queue_defaults(read(request.object, Queue), has_weight))

    def judge(self, request: ReviewRequest) -> ReviewOutcome:
        before = read_if_there(request.old_object, Queue)
        tree = self._ledger.queue_tree()
        if request.operation == DELETE:  # if a whole collection is deleted, only the object has the name
            return ReviewOutcome(
                judge_deletion(request.name or (before.metadata.name if before else ""), tree)
            )
        queue = read(request.object, Queue)
        faults = judge_queue(queue, before, tree, self._max_depth)
        if faults and queue.spec.parent:
            newest = self._latest().with_ancestry(tree, queue.spec.parent)
            faults = judge_queue(queue, before, newest, self._max_depth)
        return ReviewOutcome(faults)


class LocalQueueRules:
    """Whoever leads a namespace into a restricted queue must be allowed to use that queue: what is in the
    LocalQueue already would enter with it. `entry`: makes the rules of queues for one review."""

    def __init__(self, entry: Callable[[], EntryRules]) -> None:
        self._entry = entry

    def judge(self, request: ReviewRequest) -> ReviewOutcome:
        local, before = read(request.object, LocalQueue), read_if_there(request.old_object, LocalQueue)
        if before is not None and before.spec.queue == local.spec.queue:
            return ReviewOutcome()
        to = Destination(local.spec.queue, "spec.queue")
        return ReviewOutcome(self._entry().judge_use(to, subject(request.user_info)))
