"""What the ledger remembers of a job: an object of any kind whose controller makes pods, and which can be
suspended."""

from typing import NamedTuple

import msgspec

from extender.api.workloads.shape import Kinds
from extender.api.workloads.table import WORKLOADS
from extender.domain.model.local_queue_label import LocalQueueLabel
from extender.domain.model.reasons import Outcome
from extender.domain.model.records import GroupKey, PodRecord


class ExpectedPods(msgspec.Struct, frozen=True):
    """Pods that a job makes, all alike."""

    role: str  # the part of the job that they belong to; empty if it has only one
    count: int
    pod: PodRecord  # each of them, but for UID and name


class JobKind(NamedTuple):
    """`JobKind("batch/v1", "Job")`."""

    api_version: str
    kind: str


class JobRecord(msgspec.Struct, frozen=True):
    uid: str
    kind: JobKind
    namespace: str
    name: str
    group: GroupKey  # the group that its pods form
    created: str = ""  # metadata.creationTimestamp
    queue: str = ""  # the queue that it names itself
    local_queue: LocalQueueLabel | None = None  # the label by which it names a LocalQueue
    priority_class: str = ""
    suspended: bool = False  # by its spec
    started_at: str = ""  # when Muster let it go, by its annotation; empty: it has not
    outcome: Outcome | None = None  # how it ended; None: it has not
    pods: tuple[ExpectedPods, ...] = ()  # what it makes at once; without what has ended already
    declared: int = 0  # how many pods it makes at once by its spec, whatever has ended
    completions: int | None = None  # how many of its pods are to succeed; None: all that it makes at once
    least: int = 0  # with how few pods it may run, if it may with fewer than it asks for; 0: with no fewer
    fault: str = ""  # why its pods are not known, for people; empty if they are
    ours: bool = False  # its pods name one of our schedulers
    named_group: bool = False  # its pods name a PodGroup of somebody else's
    is_part: bool = False  # another job has made it, and is managed in its stead

    @property
    def needed(self) -> int:
        """How many pods it makes at once."""
        return sum(each.count for each in self.pods)

    @property
    def unit(self) -> str:
        """The name of its PodGroup."""
        return self.group.partition("/")[2]

    @property
    def started(self) -> bool:
        return bool(self.started_at)

    @property
    def is_let_go(self) -> bool:
        """Whether Muster has let it go, and it has not ended."""
        return self.started and not self.suspended and self.outcome is None

    @property
    def spoken_name(self) -> str:
        """`job/train`, as people say it."""
        return f"{self.kind.kind.lower()}/{self.name}"


class JobRules(msgspec.Struct, frozen=True):
    """Which jobs are managed."""

    mode: str = "suspended"  # of JOB_MODES
    namespaces: frozenset[str] = frozenset()  # whose jobs are not
    kinds: frozenset[str] = frozenset()  # which are not: "Job.batch"
    table: Kinds = msgspec.field(default_factory=lambda: WORKLOADS)  # all kinds that are known

    def manage(self, job: JobRecord, queue: str) -> bool:
        """A job that Muster has started stays its own; of others, those that name a queue and wait."""
        kind = f"{job.kind.kind}.{job.kind.api_version.rpartition('/')[0]}"
        is_left = job.namespace in self.namespaces or kind in self.kinds or job.named_group or job.is_part
        if self.mode == OFF or is_left or not queue:
            return False
        if job.outcome is not None:  # its pods are not read any more
            return job.started
        if not job.ours:
            return False
        return job.suspended or job.started or self.mode == BY_QUEUE


OFF, SUSPENDED, BY_QUEUE = "off", "suspended", "queue"
JOB_MODES = (SUSPENDED, BY_QUEUE, OFF)
