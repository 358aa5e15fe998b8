"""Creates PodGroups for pods that name none, and writes the name of its group on each such pod.

The ledger knows the group from the pod alone, so nothing waits for these writes. A PodGroup that the API
server refuses, or that was deleted, is created again after a while. Whether a plain pod gets one is a
setting; by default it has to have waited.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from extender.api.objects.pods import Pod
from extender.controllers.controller import Controller, ControllerContext
from extender.controllers.podgroup_status import first_status
from extender.domain.model.ownership import group_name
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.auto_podgroups import (
    PlainPods,
    PodGroupStep,
    build,
    min_resources,
    next_step,
    record_submitter,
)
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import Conflict

_AFTER_A_LOSS = 5.0  # seconds: the pods of a deleted group may be about to be deleted too
_PATIENCE = 2.0  # seconds for which a plain pod waits without a PodGroup


class AutoPodGroupsController(Controller[GroupKey]):
    name = "auto-podgroups"
    pause = 1.0

    def __init__(self, context: ControllerContext, plain_pods: PlainPods = PlainPods.ALWAYS) -> None:
        super().__init__(context)
        self._plain_pods = plain_pods

    def prepare(self) -> None:
        # Pods without the name of their group yet, with all fields if a PodGroup may be made for them.
        self._unnamed: dict[Uid, Pod | None] = {}
        self._awaiting: set[GroupKey] = set()  # groups whose queue is not open
        self._naming: set[Uid] = set()  # pods whose group name is being written, until the watch shows it
        self._knows_all = False  # whether all groups have been due since this replica leads

    def on_stopped_leading(self) -> None:
        self._knows_all = False
        self._awaiting.clear()
        self._naming.clear()

    def see_pod(self, pod: Pod) -> None:
        """Process a new or changed pod after the ledger has stored it."""
        uid = Uid(pod.metadata.uid)
        record = self._ledger.pods.get(uid)
        if (
            record is None
            or not (record.auto and record.group)
            or not (record.waiting or (record.holds_capacity and not record.deleting))
        ):
            return self._forget(uid)  # the pod has finished, or names a group
        has_group = self._ledger.groups.record(record.group) is not None
        goes_without = not has_group and record.is_plain and self._plain_pods is not PlainPods.ALWAYS
        if group_name(pod):
            self._forget(uid)
        else:
            self._unnamed[record.uid] = pod if record.waiting or not goes_without else None
        is_unnamed = uid in self._unnamed and uid not in self._naming
        if (has_group and is_unnamed) or not (has_group or goes_without):
            self._make_due(record.group)

    def _make_due(self, key: GroupKey) -> None:
        """Make a group due at once, unless it is in a pause after a refusal or a deletion."""
        if key not in self._queue:
            self._queue.add(key)

    def forget_pod(self, pod: PodRecord) -> None:
        self._forget(pod.uid)
        if pod.controller and pod.group:
            self._make_due(pod.group)

    def notice(self, key: GroupKey, gone: bool = False) -> None:
        """Process a new, changed or removed PodGroup or owner of its pods."""
        self._queue.move(key, _AFTER_A_LOSS if gone else 0.0)

    def _forget(self, uid: Uid) -> None:
        self._unnamed.pop(uid, None)
        self._naming.discard(uid)

    def due_keys(self, decisions: Decisions) -> Iterable[GroupKey]:
        """Return groups whose queue was not open and whose decision has changed.

        Groups of plain pods that begin to wait are due after a short delay.
        """
        changed = self._changed_groups.since_last_call(decisions)
        for key in changed if self._plain_pods is PlainPods.WAITING else ():
            waits = self._plain_pods.need_podgroup(decisions.groups.get(key))
            if waits and self._ledger.groups.record(key) is None and self._ledger.groups.plain_pod(key):
                self._queue.add(key, _PATIENCE)
        if self._knows_all:
            return self._awaiting.intersection(changed)
        self._knows_all = True
        return [key for key in changed if key not in self._queue]

    def reconcile(self, key: GroupKey) -> None:
        self._awaiting.discard(key)
        record = self._ledger.groups.record(key)
        if record is not None:
            for pod in self._ledger.groups.members(key):
                if pod.uid in self._unnamed and pod.uid not in self._naming:
                    self._naming.add(pod.uid)
                    write = partial(
                        self._cluster.annotate_with_group, pod.namespace, pod.name, pod.uid, record.name
                    )
                    self.write(key, write, target=pod.uid, undone=partial(self._naming.discard, pod.uid))
        match next_step(self._ledger.groups.auto_group(key), self._goes_without(key)):
            case PodGroupStep.MAKE:
                self.write(key, partial(self._create, key))
            case PodGroupStep.RENUMBER:
                self.write(key, partial(self._renumber, key))
            case PodGroupStep.DELETE:
                self.write(key, partial(self._delete, key))
            case PodGroupStep.AWAIT_QUEUE:
                self._awaiting.add(key)

    def _goes_without(self, key: GroupKey) -> bool:
        needs_one = self._plain_pods.need_podgroup(self._decisions.groups.get(key))
        return not needs_one and self._ledger.groups.plain_pod(key) is not None

    def _create(self, key: GroupKey) -> None:
        """Create the PodGroup of pods that name none."""
        members = [pod for pod in self._pods(key) if pod.waiting or pod.holds_capacity]
        if not members:
            return
        member = next((pod for pod in members if self._unnamed.get(pod.uid)), members[0])
        pod = self._unnamed.get(member.uid) or self._cluster.pod(member.namespace, member.name)
        label = self._ledger.groups.local_queue_label_of(key)
        owner, queue = self._ledger.registry.owner_of(key), self._ledger.groups.queue_of(key)
        group = build(pod, owner, self._ledger.groups.auto_group(key).wanted, queue, label)
        group["status"] |= first_status(self._ledger.decisions.groups.get(key))
        record_submitter(group, self._ledger.groups.submitter_of(key))
        with suppress(Conflict):  # it exists already: the watch will show it
            self._cluster.create_group(member.namespace, group)

    def _renumber(self, key: GroupKey) -> None:
        """Write the size of a gang that its owner has changed."""
        record, owner = self._ledger.groups.record(key), self._ledger.registry.owner_of(key)
        pods = self._pods(key)
        if record is not None and owner is not None and pods:
            wanted = self._ledger.groups.auto_group(key).wanted
            requests = min_resources(pods[0].shape.requests, owner, wanted)
            spec = {"minMember": wanted, "minResources": requests or None}
            self._cluster.patch_group(record.namespace, record.name, record.uid, {"spec": spec})

    def _delete(self, key: GroupKey) -> None:
        """Delete a PodGroup. By now it may be gone with its owner."""
        record = self._ledger.groups.record(key)
        if record is not None:
            self._cluster.delete_group(record.namespace, record.name, record.uid)

    def _pods(self, key: GroupKey) -> list[PodRecord]:
        return [pod for pod in self._ledger.groups.members(key) if pod.auto]
