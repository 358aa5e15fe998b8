"""Making PodGroups for pods that name none, and noting on each pod which group it is in.

The ledger knows the group of such a pod from the pod alone, so nobody waits for what is written here. What is
due is told by the watches, and done is what `next_step` says; a look costs what is due. A PodGroup that the
API server refuses, or that somebody deleted, is made again after a while.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from extender.api.objects import Pod
from extender.controllers.actor import Actor
from extender.domain.decisions.decisions import Decisions
from extender.domain.lifecycle.auto_podgroups import Step, build, min_resources, next_step
from extender.domain.model.ownership import group_name
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.kube.errors import ApiError, Conflict, NotFound
from extender.telemetry.logs import logger

log = logger(__name__)

_AFTER_A_REFUSAL = 30.0
_AFTER_A_LAPSE = 1.0
_AFTER_A_LOSS = 5.0  # who deletes a group with its pods does so in some order


class Grouper(Actor):
    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._unnamed: dict[
            GroupKey, dict[Uid, Pod]
        ] = {}  # pods that do not bear the name of their group yet
        self._where: dict[Uid, GroupKey] = {}
        self._due: dict[GroupKey, float] = {}  # from when on there is something to do for a group
        self._awaiting: set[GroupKey] = set()  # those whose queue is not open
        self._asked: set[Uid] = set()

    # ---- what the watches tell

    def see_pod(self, pod: Pod) -> None:
        """The ledger has it already."""
        uid, key = Uid(pod.metadata.uid), self._group_of(pod)
        lacks_group = key is not None and self._ledger.group_record(key) is None
        with self._lock:
            self._forget(uid)
            if key is None or group_name(pod):
                self._asked.discard(uid)
            else:
                self._unnamed.setdefault(key, {})[uid] = pod
                self._where[uid] = key
            if key is not None and (lacks_group or (uid in self._where and uid not in self._asked)):
                self._due.setdefault(key, 0.0)

    def _group_of(self, pod: Pod) -> GroupKey | None:
        """None for a pod that has finished, or whose group is somebody else's affair."""
        record = self._ledger.pod(Uid(pod.metadata.uid))
        if record is None or not (record.auto and record.group):
            return None
        alive = record.waiting or (record.holds_room and not record.deleting)
        return record.group if alive else None

    def forget_pod(self, pod: PodRecord) -> None:
        with self._lock:
            self._forget(pod.uid)
            self._asked.discard(pod.uid)
            if pod.auto and pod.group:
                self._due.setdefault(pod.group, 0.0)

    def notice(self, key: GroupKey, gone: bool = False) -> None:
        """A PodGroup, or the owner of its pods, has come, changed or gone."""
        with self._lock:
            self._due[key] = self._clock() + _AFTER_A_LOSS if gone else 0.0

    def _forget(self, uid: Uid) -> None:
        key = self._where.pop(uid, None)
        if key is not None:
            del self._unnamed[key][uid]
            if not self._unnamed[key]:
                del self._unnamed[key]

    # ---- what is written

    def look(self, decisions: Decisions) -> None:
        """Who does not lead leaves it due."""
        if not self._leads():
            return
        for key in self._take_due(decisions):
            self._bring_about(key)

    def _take_due(self, decisions: Decisions) -> set[GroupKey]:
        """Whatever lets a group go to an open queue is a turn of it."""
        now, turned = self._clock(), self._turns.of(decisions)
        with self._lock:
            due = {key for key, at in self._due.items() if at <= now}
            for key in due:
                del self._due[key]
            due |= self._awaiting.intersection(turned)
            self._awaiting -= due
        return due

    def _bring_about(self, key: GroupKey) -> None:
        self._name_members(key)
        match next_step(self._ledger.auto_group(key)):
            case Step.MAKE:
                self._submit(key, self._create)
            case Step.RENUMBER:
                self._submit(key, self._renumber)
            case Step.DELETE:
                self._submit(key, self._delete)
            case Step.AWAIT_QUEUE:
                with self._lock:
                    self._awaiting.add(key)

    def _create(self, key: GroupKey) -> None:
        member = next((pod for pod in self._pods(key) if pod.waiting or pod.holds_room), None)
        if member is None:
            return
        with self._lock:
            pod = next(iter(self._unnamed.get(key, {}).values()), None)
        pod = pod or self._cluster.pod(member.namespace, member.name)
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
        with self._lock:
            pods = [pod for uid, pod in self._unnamed.get(key, {}).items() if uid not in self._asked]
            self._asked.update(Uid(pod.metadata.uid) for pod in pods)
        for pod in pods:
            meta = pod.metadata
            write = partial(self._cluster.name_group, meta.namespace, meta.name, meta.uid, record.name)
            self._writers.submit(("name", meta.uid), write, partial(self._named, key, Uid(meta.uid)))

    def _named(self, key: GroupKey, uid: Uid, fault: ApiError | None) -> None:
        """Until the watch shows the pod with the name, it is not asked for again."""
        if fault is not None:
            with self._lock:
                self._asked.discard(uid)
        self._ended(key, fault)

    def _submit(self, key: GroupKey, write: Callable[[GroupKey], None]) -> None:
        self._writers.submit(("group", key), partial(write, key), partial(self._ended, key))

    def _ended(self, key: GroupKey, fault: ApiError | None) -> None:
        if fault is None or isinstance(fault, NotFound):
            return
        patience = _AFTER_A_LAPSE if fault.transient else _AFTER_A_REFUSAL
        with self._lock:
            self._due[key] = self._clock() + patience
        log.debug("a group is not as it should be yet", group=key, error=str(fault))
