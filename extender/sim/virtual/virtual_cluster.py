"""The cluster as the Ledger hears of it, with an ideal scheduler: what is planned is taken at once.

Pods come without our gate, which nothing here would open. They are bound, run, and end; once all of a group
has ended, it goes with its pods, as after the time to live of a Job.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from extender.api.objects.pods import Pod, PodStatus
from extender.domain.cache.claims import Claim
from extender.domain.cache.ledger import Ledger
from extender.domain.decisions.decisions import Decisions
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.limits import Limits
from extender.sim.virtual.workload import BEGIN, VirtualWorkload, key_of_group

RUNNING, SUCCEEDED, FAILED = (PodStatus(phase) for phase in ("Running", "Succeeded", "Failed"))


class VirtualCluster:
    """`rounds` is how many decisions were made."""

    def __init__(
        self,
        workload: VirtualWorkload,
        limits: Limits,
        schedulers: frozenset[str],
        clock: Callable[[], float],
    ) -> None:
        own = Ownership(schedulers, auto_groups=True)
        self.ledger = Ledger(own, limits, clock, wall_clock=lambda: BEGIN.timestamp() + clock())
        self.rounds = 0
        self._clock = clock
        self._pods: dict[Uid, Pod] = {}  # those that have not ended
        self._present: dict[GroupKey, list[Uid]] = {}  # by group, ended ones too
        self._left = Counter(key_of_group(member.pod) for member in workload.members)
        self._seen = -1
        self._load(workload)

    def _load(self, workload: VirtualWorkload) -> None:
        for node in workload.nodes:
            self.ledger.set_node(node)
        for queue in workload.queues:
            self.ledger.set_queue(queue)
        for priority in workload.priority_classes:
            self.ledger.set_priority_class(priority)
        for namespace in workload.namespaces:
            self.ledger.set_namespace(namespace)
        for local in workload.local_queues:
            self.ledger.set_local_queue(local)
        self.ledger.set_quota_namespaces(dict(workload.entering))
        for owner in workload.owners:
            self.ledger.set_owner(owner)

    # ---- pods

    def add(self, pod: Pod) -> PodRecord:
        """A pod comes; one that names a node runs there."""
        if pod.spec.node_name:
            pod = msgspec.structs.replace(pod, status=RUNNING)
        uid = Uid(pod.metadata.uid)
        self._pods[uid] = pod
        self._present.setdefault(key_of_group(pod), []).append(uid)
        self.ledger.set_pod(pod)
        return self._record(uid)

    def end(self, uid: Uid, status: PodStatus) -> PodRecord | None:
        """A pod ends; None where it is gone already."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        self.ledger.set_pod(msgspec.structs.replace(pod, status=status))
        record = self._record(uid)
        self._one_less(key_of_group(pod))
        return record

    def _one_less(self, group: GroupKey) -> None:
        self._left[group] -= 1
        if not self._left[group]:
            for uid in self._present.pop(group):
                self.ledger.drop_pod(uid)
            self.ledger.drop_group(group)

    def _record(self, uid: Uid) -> PodRecord:
        record = self.ledger.pod(uid)
        assert record is not None
        return record

    # ---- decisions

    def settle(self) -> tuple[list[Claim], list[PodRecord]]:
        """Decide until no more pods start; returns the claims that were bound, and the evicted pods."""
        bound: list[Claim] = []
        evicted: list[PodRecord] = []
        due = self._is_due()
        while due:
            decisions = self._decide()
            out = [record for record in map(self._evict, _undone(decisions)) if record]
            out += [record for record in map(self._take_away, decisions.evictions) if record]
            taken = self._take()
            bound, evicted, due = bound + taken, evicted + out, bool(taken or out)
        self._seen = self.ledger.version
        return bound, evicted

    def _is_due(self) -> bool:
        wake_at = self.ledger.decisions.wake_at
        return self.ledger.version != self._seen or (wake_at is not None and wake_at <= self._clock())

    def _decide(self) -> Decisions:
        decisions = decide(self.ledger.snapshot(), self.ledger.decisions)
        self.ledger.publish(decisions)
        self.rounds += 1
        return decisions

    def _take(self) -> list[Claim]:
        """The scheduler asks for every planned pod and binds it to the planned node; the barrier lets go."""
        planned = self.ledger.to_release()
        for claim in planned:
            if isinstance(self.ledger.answer(claim.pod.uid, [claim.node]), list):
                self.ledger.hold(claim.pod.uid, claim.node, token=1)
        return [
            claim
            for key in dict.fromkeys(claim.pod.group for claim in planned)
            for claim in self._bind(self.ledger.confirm(key).posting)
        ]

    def _bind(self, posting: Sequence[Claim]) -> Iterable[Claim]:
        for claim in posting:
            pod = self._pods[claim.pod.uid]
            spec = msgspec.structs.replace(pod.spec, node_name=claim.node)
            self._pods[claim.pod.uid] = pod = msgspec.structs.replace(pod, spec=spec, status=RUNNING)
            self.ledger.set_pod(pod)
        return posting

    def _evict(self, uid: Uid) -> PodRecord | None:
        """A pod of a start that failed finally; nothing creates it again."""
        record = self.end(uid, FAILED)
        self.ledger.drop_pod(uid)
        return record

    def _take_away(self, uid: Uid) -> PodRecord | None:
        """A pod that gives its room to others; its controller creates it again."""
        if (pod := self._pods.pop(uid, None)) is None:
            return None
        record = self._record(uid)
        self._present[key_of_group(pod)].remove(uid)
        self.ledger.drop_pod(uid)
        return record


def _undone(decisions: Decisions) -> list[Uid]:
    return [uid for decision in decisions.groups.values() for uid in decision.undo]
