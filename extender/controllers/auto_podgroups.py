"""Creates PodGroups for pods that name none, and writes the name of its group on each such pod.

The ledger knows the group of such a pod from the pod alone, so nothing waits for these writes. Watches say
which groups are due, and `next_step` says what to do. A PodGroup that the API server refuses, or that was
deleted, is created again after a while.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from extender.api.objects.pods import Pod
from extender.controllers.controller import Controller, ControllerContext
from extender.controllers.objects import UnnamedPods
from extender.domain.model.ownership import group_name
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.auto_podgroups import PodGroupStep, build, min_resources, next_step
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import Conflict

_AFTER_A_LOSS = 5.0  # seconds: the pods of a deleted group may be about to be deleted too


class AutoPodGroupsController(Controller[GroupKey]):
    name = "auto-podgroups"
    pause = 1.0

    def __init__(self, context: ControllerContext, unnamed: UnnamedPods) -> None:
        super().__init__(context)
        self._unnamed = unnamed

    def prepare(self) -> None:
        self._awaiting: set[GroupKey] = set()  # groups whose queue is not open
        self._asked: set[Uid] = set()  # pods whose group name is being written, until the watch shows it
        self._knows_all = False  # whether all groups have been due since this replica leads

    def rest(self) -> None:
        self._knows_all = False
        self._awaiting.clear()
        self._asked.clear()

    # ---- from the watches

    def see_pod(self, pod: Pod) -> None:
        """A pod is new or has changed; the ledger has it already."""
        uid, key = Uid(pod.metadata.uid), self._group_of(pod)
        lacks_group = key is not None and self._ledger.group_record(key) is None
        if key is None or group_name(pod):
            self._forget(uid)
        else:
            self._unnamed.put(key, pod)
        is_due = lacks_group or (uid in self._unnamed and uid not in self._asked)
        if key is not None and is_due:
            self._make_due(key)

    def _make_due(self, key: GroupKey) -> None:
        """Make a group due at once, unless it waits already after a refusal or a deletion."""
        if key not in self._queue:
            self._queue.add(key)

    def _group_of(self, pod: Pod) -> GroupKey | None:
        """None for a pod that has finished, or that names its group."""
        record = self._ledger.pod(Uid(pod.metadata.uid))
        if record is None or not (record.auto and record.group):
            return None
        alive = record.waiting or (record.holds_room and not record.deleting)
        return record.group if alive else None

    def forget_pod(self, pod: PodRecord) -> None:
        self._forget(pod.uid)
        if pod.auto and pod.group:
            self._make_due(pod.group)

    def notice(self, key: GroupKey, gone: bool = False) -> None:
        """A PodGroup, or the owner of its pods, is new, has changed or is gone."""
        self._queue.move(key, _AFTER_A_LOSS if gone else 0.0)

    def _forget(self, uid: Uid) -> None:
        self._unnamed.drop(uid)
        self._asked.discard(uid)

    # ---- what is written

    def due(self, decisions: Decisions) -> Iterable[GroupKey]:
        """Groups whose queue was not open and whose decision has changed, as it does when the queue opens."""
        turned = self._changed_groups.of(decisions)
        if not self._knows_all:
            self._knows_all = True
            return turned
        return self._awaiting.intersection(turned)

    def reconcile(self, key: GroupKey) -> None:
        self._awaiting.discard(key)
        self._name_members(key)
        match next_step(self._ledger.auto_group(key)):
            case PodGroupStep.MAKE:
                self.write(key, partial(self._create, key))
            case PodGroupStep.RENUMBER:
                self.write(key, partial(self._renumber, key))
            case PodGroupStep.DELETE:
                self.write(key, partial(self._delete, key))
            case PodGroupStep.AWAIT_QUEUE:
                self._awaiting.add(key)

    def _create(self, key: GroupKey) -> None:
        member = next((pod for pod in self._pods(key) if pod.waiting or pod.holds_room), None)
        if member is None:
            return
        pod = next(iter(self._unnamed.of(key)), None) or self._cluster.pod(member.namespace, member.name)
        label = self._ledger.local_queue_label_of(key)
        group = build(pod, self._ledger.owner_of(key), self._ledger.queue_of(key), label)
        with suppress(Conflict):  # it exists already: the watch will show it
            self._cluster.create_group(member.namespace, group)

    def _renumber(self, key: GroupKey) -> None:
        record, owner, pods = self._ledger.group_record(key), self._ledger.owner_of(key), self._pods(key)
        if record is not None and owner is not None and pods:
            requests = min_resources(pods[0].shape.requests, owner.min_member)
            spec = {"minMember": owner.min_member, "minResources": requests}
            self._cluster.patch_group(record.namespace, record.name, record.uid, {"spec": spec})

    def _delete(self, key: GroupKey) -> None:
        record = self._ledger.group_record(key)
        if record is not None:
            self._cluster.delete_group(record.namespace, record.name, record.uid)

    def _pods(self, key: GroupKey) -> list[PodRecord]:
        return [pod for pod in self._ledger.members(key) if pod.auto]

    def _name_members(self, key: GroupKey) -> None:
        record = self._ledger.group_record(key)
        if record is None:
            return
        for pod in self._unnamed.of(key):
            meta = pod.metadata
            if meta.uid in self._asked:
                continue
            self._asked.add(Uid(meta.uid))
            write = partial(self._cluster.name_group, meta.namespace, meta.name, meta.uid, record.name)
            self.write(key, write, of=meta.uid, undone=partial(self._not_named, Uid(meta.uid)))

    def _not_named(self, uid: Uid) -> None:
        """The write failed, so the pod is due again; otherwise the watch shows the pod with the name."""
        self._asked.discard(uid)
