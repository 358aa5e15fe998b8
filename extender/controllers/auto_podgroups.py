"""Creates PodGroups for pods that name none, and writes the name of its group on each such pod.

The ledger knows the group from the pod alone, so nothing waits for these writes. A PodGroup that the API
server refuses, or that was deleted, is created again after a while.
"""

import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from extender.api.objects.pods import Pod
from extender.controllers.controller import Controller
from extender.domain.model.ownership import group_name
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.auto_podgroups import PodGroupStep, build, min_resources, next_step
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import Conflict

_AFTER_A_LOSS = 5.0  # seconds: the pods of a deleted group may be about to be deleted too


class _UnnamedPods:
    """Pods that do not have the name of their group yet, by that group. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pods: dict[GroupKey, dict[Uid, Pod]] = {}
        self._groups: dict[Uid, GroupKey] = {}

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._groups

    def put(self, key: GroupKey, pod: Pod) -> None:
        uid = Uid(pod.metadata.uid)
        with self._lock:
            self.drop(uid)
            self._pods.setdefault(key, {})[uid] = pod
            self._groups[uid] = key

    def drop(self, uid: Uid) -> None:
        with self._lock:
            key = self._groups.pop(uid, None)
            if key is not None:
                del self._pods[key][uid]
                if not self._pods[key]:
                    del self._pods[key]

    def of(self, key: GroupKey) -> list[Pod]:
        with self._lock:
            return list(self._pods.get(key, {}).values())


class AutoPodGroupsController(Controller[GroupKey]):
    name = "auto-podgroups"
    pause = 1.0

    def prepare(self) -> None:
        self._unnamed = _UnnamedPods()
        self._awaiting: set[GroupKey] = set()  # groups whose queue is not open
        self._asked: set[Uid] = set()  # pods whose group name is being written, until the watch shows it
        self._knows_all = False  # whether all groups have been due since this replica leads

    def rest(self) -> None:
        self._knows_all = False
        self._awaiting.clear()
        self._asked.clear()

    def see_pod(self, pod: Pod) -> None:
        """A pod is new or has changed; the ledger has it already."""
        uid = Uid(pod.metadata.uid)
        record = self._ledger.pods.get(uid)
        if (
            record is None
            or not (record.auto and record.group)
            or not (record.waiting or (record.holds_room and not record.deleting))
        ):
            return self._forget(uid)  # it has finished, or names a group of its own
        key = record.group
        if group_name(pod):
            self._forget(uid)
        else:
            self._unnamed.put(key, pod)
        if self._ledger.groups.record(key) is None or (uid in self._unnamed and uid not in self._asked):
            self._make_due(key)

    def _make_due(self, key: GroupKey) -> None:
        """Make a group due at once, unless it waits already after a refusal or a deletion."""
        if key not in self._queue:
            self._queue.add(key)

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

    def due(self, decisions: Decisions) -> Iterable[GroupKey]:
        """Groups whose queue was not open and whose decision has changed, as it does when the queue opens."""
        turned = self._changed_groups.of(decisions)
        if self._knows_all:
            return self._awaiting.intersection(turned)
        self._knows_all = True
        return turned

    def reconcile(self, key: GroupKey) -> None:
        self._awaiting.discard(key)
        record = self._ledger.groups.record(key)
        if record is not None:
            for pod in self._unnamed.of(key):
                meta, uid = pod.metadata, Uid(pod.metadata.uid)
                if uid not in self._asked:
                    self._asked.add(uid)
                    write = partial(self._cluster.name_group, meta.namespace, meta.name, uid, record.name)
                    self.write(key, write, of=uid, undone=partial(self._asked.discard, uid))
        match next_step(self._ledger.groups.auto_group(key)):
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
        label = self._ledger.groups.local_queue_label_of(key)
        owner, queue = self._ledger.registry.owner_of(key), self._ledger.groups.queue_of(key)
        group = build(pod, owner, self._ledger.groups.auto_group(key).wanted, queue, label)
        with suppress(Conflict):  # it exists already: the watch will show it
            self._cluster.create_group(member.namespace, group)

    def _renumber(self, key: GroupKey) -> None:
        record, owner = self._ledger.groups.record(key), self._ledger.registry.owner_of(key)
        pods = self._pods(key)
        if record is not None and owner is not None and pods:
            wanted = self._ledger.groups.auto_group(key).wanted
            requests = min_resources(pods[0].shape.requests, owner, wanted)
            spec = {"minMember": wanted, "minResources": requests or None}
            self._cluster.patch_group(record.namespace, record.name, record.uid, {"spec": spec})

    def _delete(self, key: GroupKey) -> None:
        """By now it may be gone with its owner."""
        record = self._ledger.groups.record(key)
        if record is not None:
            self._cluster.delete_group(record.namespace, record.name, record.uid)

    def _pods(self, key: GroupKey) -> list[PodRecord]:
        return [pod for pod in self._ledger.groups.members(key) if pod.auto]
