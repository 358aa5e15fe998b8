"""Making PodGroups for pods that name none, and noting on each pod which group it is in.

The ledger knows the group of such a pod from the pod alone, so nobody waits for what is written here. What is
due is told by the watches, and done is what `next_step` says; a look costs what is due. A PodGroup that the
API server refuses, or that somebody deleted, is made again after a while.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from extender.api.objects import Pod
from extender.controllers.controller import Controller, ControllerContext
from extender.controllers.object_store import UnnamedPods
from extender.domain.decisions.decisions import Decisions
from extender.domain.lifecycle.auto_podgroups import PodGroupStep, build, min_resources, next_step
from extender.domain.model.ownership import group_name
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.kube.errors import Conflict

_AFTER_A_LOSS = 5.0  # who deletes a group with its pods does so in some order


class AutoPodGroupsController(Controller[GroupKey]):
    name = "auto-podgroups"
    pause = 1.0

    def __init__(self, context: ControllerContext, unnamed: UnnamedPods) -> None:
        super().__init__(context)
        self._unnamed = unnamed

    def prepare(self) -> None:
        self._awaiting: set[GroupKey] = set()  # those whose queue is not open
        self._asked: set[Uid] = set()  # pods whose name is on its way, until the watch shows it
        self._knows_all = False  # whether all groups have been due since we lead

    def rest(self) -> None:
        self._knows_all = False
        self._awaiting.clear()
        self._asked.clear()

    # ---- what the watches tell

    def see_pod(self, pod: Pod) -> None:
        """The ledger has it already."""
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
        """One that waits after a refusal or a loss goes on waiting."""
        if key not in self._queue:
            self._queue.add(key)

    def _group_of(self, pod: Pod) -> GroupKey | None:
        """None for a pod that has finished, or whose group is somebody else's affair."""
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
        """A PodGroup, or the owner of its pods, has come, changed or gone."""
        self._queue.move(key, _AFTER_A_LOSS if gone else 0.0)

    def _forget(self, uid: Uid) -> None:
        self._unnamed.drop(uid)
        self._asked.discard(uid)

    # ---- what is written

    def due(self, decisions: Decisions) -> Iterable[GroupKey]:
        """Of groups whose queue was not open those that took a turn: whatever opens it for them is one."""
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
        group = build(pod, self._ledger.owner_of(key), self._ledger.queue_of(key))
        with suppress(Conflict):  # it is there: the watch shows it
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
        """Otherwise it is not asked for again until the watch shows the pod with the name."""
        self._asked.discard(uid)
