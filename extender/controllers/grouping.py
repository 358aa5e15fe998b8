"""Making PodGroups for pods that name none, and noting on each pod which group it is in.

The ledger knows the group of such a pod from the pod alone, so nobody waits for what is written here. What is
due is told by the watches; a look costs what is due. A PodGroup that the API server refuses, or that somebody
deleted, is made again after a while.
"""

import threading
from contextlib import suppress
from functools import partial

from extender.api.objects import Pod
from extender.controllers.actor import Actor
from extender.domain.auto_groups import OwnerRecord, build, min_resources
from extender.domain.decisions import Decisions
from extender.domain.records import GroupKey, GroupRecord, PodRecord, Uid, group_name
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
        self._asked: set[Uid] = set()

    # ---- what the watches tell

    def see_pod(self, pod: Pod) -> None:
        """The ledger has it already."""
        uid = Uid(pod.metadata.uid)
        record = self._ledger.pod(uid)
        with self._lock:
            self._forget(uid)
            if record is None or not (record.auto and record.group) or not _is_due(pod):
                self._asked.discard(uid)
                return
            self._unnamed.setdefault(record.group, {})[uid] = pod
            self._where[uid] = record.group
            if uid not in self._asked:
                self._due.setdefault(record.group, 0.0)

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

    def look(self, _: Decisions) -> None:
        """Who does not lead leaves it due."""
        if not self._leads():
            return
        now = self._clock()
        with self._lock:
            due = [key for key, at in self._due.items() if at <= now]
            for key in due:
                del self._due[key]
        for key in due:
            self._bring_about(key)

    def _bring_about(self, key: GroupKey) -> None:
        record, owner = self._ledger.group_record(key), self._ledger.owner_of(key)
        members = [pod for pod in self._ledger.members(key) if pod.auto]
        if record is None:
            living = [pod for pod in members if pod.waiting or pod.holds_room]
            if living:
                self._submit(key, partial(self._create, key, living[0], owner))
            return
        self._name_members(key, record)
        if owner is not None and members and record.min_member != owner.min_member:
            self._submit(key, partial(self._renumber, record, members[0], owner))
        if owner is not None and owner.idle and not self._is_used(key):
            self._submit(key, partial(self._delete, record))

    def _is_used(self, key: GroupKey) -> bool:
        return bool(self._ledger.members(key)) or self._ledger.may_be_left(key)

    def _create(self, key: GroupKey, member: PodRecord, owner: OwnerRecord | None) -> None:
        with self._lock:
            pod = next(iter(self._unnamed.get(key, {}).values()), None)
        pod = pod or self._cluster.pod(member.namespace, member.name)
        with suppress(Conflict):  # it is there: the watch shows it
            self._cluster.create_group(member.namespace, build(pod, owner, self._ledger.queue_of(key)))

    def _renumber(self, record: GroupRecord, member: PodRecord, owner: OwnerRecord) -> None:
        """The owner's numbers changed."""
        requests = min_resources(member.shape.requests, owner.min_member)
        spec = {"minMember": owner.min_member, "minResources": requests}
        self._cluster.patch_group(record.namespace, record.name, record.uid, {"spec": spec})

    def _delete(self, record: GroupRecord) -> None:
        """The owner wants no pods, like that of an old revision, which would keep the group for ever."""
        self._cluster.delete_group(record.namespace, record.name, record.uid)

    def _name_members(self, key: GroupKey, record: GroupRecord) -> None:
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

    def _submit(self, key: GroupKey, write: partial[None]) -> None:
        self._writers.submit(("group", key), write, partial(self._ended, key))

    def _ended(self, key: GroupKey, fault: ApiError | None) -> None:
        if fault is None or isinstance(fault, NotFound):
            return
        patience = _AFTER_A_LAPSE if fault.transient else _AFTER_A_REFUSAL
        with self._lock:
            self._due[key] = self._clock() + patience
        log.debug("a group is not as it should be yet", group=key, error=str(fault))


def _is_due(pod: Pod) -> bool:
    """Whether a pod is to bear the name of its group: it does not, and has not finished."""
    finished = pod.status.phase in ("Succeeded", "Failed") or pod.metadata.deletion_timestamp is not None
    return not group_name(pod) and not finished
