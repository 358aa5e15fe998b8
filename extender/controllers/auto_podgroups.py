"""Creation of PodGroups for pods that name no group, and of the annotation with the group's name on each pod.

The ledger derives the group from the pod alone, so scheduling does not wait for these writes. If the API
server refuses a PodGroup, or if a PodGroup was deleted, the controller creates it again after a pause. A
setting decides whether a plain pod gets a PodGroup; by default only a plain pod that has waited gets one.
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

_DELETION_PAUSE = 5.0  # seconds after the deletion of a PodGroup: its pods may be deleted soon, too
_MIN_PLAIN_WAIT = 2.0  # seconds for which a plain pod waits without a PodGroup


class AutoPodGroupsController(Controller[GroupKey]):
    name = "auto-podgroups"
    pause = 1.0

    def __init__(self, context: ControllerContext, plain_pods: PlainPods = PlainPods.ALWAYS) -> None:
        super().__init__(context)
        self._plain_pods = plain_pods

    def prepare(self) -> None:
        # Pods without the annotation of their group, by UID; None if no PodGroup is made from the pod.
        self._unnamed_pods: dict[Uid, Pod | None] = {}
        self._queueless_groups: set[GroupKey] = set()  # groups whose PodGroup waits until their queue is open
        self._pending_pods: set[Uid] = set()  # pods with a write of the annotation that is not shown yet
        self._has_listed_all = False  # whether all groups have been due since this replica began to lead

    def on_stopped_leading(self) -> None:
        self._has_listed_all = False
        self._queueless_groups.clear()
        self._pending_pods.clear()

    def see_pod(self, pod: Pod) -> None:
        """Process a new or changed pod after the ledger has stored it."""
        uid = Uid(pod.metadata.uid)
        record = self._ledger.pods.get(uid)
        if (
            record is None
            or not (record.is_auto and record.group)
            or not (record.is_waiting or (record.holds_capacity and not record.deleting))
        ):
            return self._forget(uid)  # the pod has ended, or names its group itself
        has_podgroup = self._ledger.groups.record(record.group) is not None
        needs_no_podgroup = not has_podgroup and record.is_plain and self._plain_pods is not PlainPods.ALWAYS
        if group_name(pod):
            self._forget(uid)
        else:
            self._unnamed_pods[record.uid] = pod if record.is_waiting or not needs_no_podgroup else None
        is_unnamed = uid in self._unnamed_pods and uid not in self._pending_pods
        if (has_podgroup and is_unnamed) or not (has_podgroup or needs_no_podgroup):
            self._make_due(record.group)

    def _make_due(self, key: GroupKey) -> None:
        """Add a group to the work queue, unless a pause after a refusal or a deletion still runs."""
        if key not in self._queue:
            self._queue.add(key)

    def forget_pod(self, pod: PodRecord) -> None:
        self._forget(pod.uid)
        if pod.controller and pod.group:
            self._make_due(pod.group)

    def notice(self, key: GroupKey, is_removed: bool = False) -> None:
        """Process a new or changed PodGroup, or a new or changed owner of a group's pods.

        `is_removed` means that the PodGroup or the owner is gone.
        """
        self._queue.move(key, _DELETION_PAUSE if is_removed else 0.0)

    def _forget(self, uid: Uid) -> None:
        self._unnamed_pods.pop(uid, None)
        self._pending_pods.discard(uid)

    def due_keys(self, decisions: Decisions) -> Iterable[GroupKey]:
        """Return the changed groups whose PodGroup waits until their queue is open.

        The first call returns all groups. Plain pods that begin to wait get their PodGroup only after a short
        delay.
        """
        changed_groups = self._changed_groups.since_last_call(decisions)
        for key in changed_groups if self._plain_pods is PlainPods.WAITING else ():
            is_due = self._plain_pods.need_podgroup(decisions.groups.get(key))
            if is_due and self._ledger.groups.record(key) is None and self._ledger.groups.plain_pod(key):
                self._queue.add(key, _MIN_PLAIN_WAIT)
        if self._has_listed_all:
            return self._queueless_groups.intersection(changed_groups)
        self._has_listed_all = True
        return [key for key in changed_groups if key not in self._queue]

    def reconcile(self, key: GroupKey) -> None:
        """Write the missing annotations of a group's pods, and create, resize or delete its PodGroup."""
        self._queueless_groups.discard(key)
        record = self._ledger.groups.record(key)
        if record is not None:
            for pod in self._ledger.groups.members(key):
                if pod.uid in self._unnamed_pods and pod.uid not in self._pending_pods:
                    self._pending_pods.add(pod.uid)
                    annotate = self._cluster.annotate_with_group
                    write = partial(annotate, pod.namespace, pod.name, pod.uid, record.name)
                    forget = partial(self._pending_pods.discard, pod.uid)
                    self.write(key, write, target=pod.uid, on_failure=forget)
        match next_step(self._ledger.groups.auto_group(key), self._needs_no_podgroup(key)):
            case PodGroupStep.MAKE:
                self.write(key, partial(self._create, key))
            case PodGroupStep.RENUMBER:
                self.write(key, partial(self._resize, key))
            case PodGroupStep.DELETE:
                self.write(key, partial(self._delete, key))
            case PodGroupStep.AWAIT_QUEUE:
                self._queueless_groups.add(key)

    def _needs_no_podgroup(self, key: GroupKey) -> bool:
        """Return whether a group is a plain pod that needs no PodGroup now, by the setting for plain pods."""
        needs_podgroup = self._plain_pods.need_podgroup(self._decisions.groups.get(key))
        return not needs_podgroup and self._ledger.groups.plain_pod(key) is not None

    def _create(self, key: GroupKey) -> None:
        """Create the PodGroup of a group, unless all its pods have ended."""
        members = [pod for pod in self._unnamed_members(key) if pod.is_waiting or pod.holds_capacity]
        if not members:
            return
        member = next((pod for pod in members if self._unnamed_pods.get(pod.uid)), members[0])
        pod = self._unnamed_pods.get(member.uid) or self._cluster.pod(member.namespace, member.name)
        label = self._ledger.groups.local_queue_label_of(key)
        owner, queue = self._ledger.registry.owner_of(key), self._ledger.groups.queue_of(key)
        podgroup = build(pod, owner, self._ledger.groups.auto_group(key).member_count, queue, label)
        podgroup["status"] |= first_status(self._ledger.decisions.groups.get(key))
        record_submitter(podgroup, self._ledger.groups.submitter_of(key))
        with suppress(Conflict):  # the PodGroup exists already; the watch will show it
            self._cluster.create_group(member.namespace, podgroup)

    def _resize(self, key: GroupKey) -> None:
        """Write the new size of a group, which the owner of the pods has changed, to its PodGroup."""
        record, owner = self._ledger.groups.record(key), self._ledger.registry.owner_of(key)
        pods = self._unnamed_members(key)
        if record is not None and owner is not None and pods:
            member_count = self._ledger.groups.auto_group(key).member_count
            requests = min_resources(pods[0].shape.requests, owner, member_count)
            spec = {"minMember": member_count, "minResources": requests or None}
            self._cluster.patch_group(record.namespace, record.name, record.uid, {"spec": spec})

    def _delete(self, key: GroupKey) -> None:
        """Delete the PodGroup of a group, unless it is gone already, for example together with its owner."""
        record = self._ledger.groups.record(key)
        if record is not None:
            self._cluster.delete_group(record.namespace, record.name, record.uid)

    def _unnamed_members(self, key: GroupKey) -> list[PodRecord]:
        """Return the members of a group that name no group themselves."""
        return [pod for pod in self._ledger.groups.members(key) if pod.is_auto]
