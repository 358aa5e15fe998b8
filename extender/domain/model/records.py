"""What the ledger remembers of pods and groups: small frozen records."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NewType

import msgspec

from extender.api.keys import ENDED_PHASES
from extender.domain.model.pod_owners import group_name_of
from extender.domain.model.resources import Resources
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import Shape

Uid = NewType("Uid", str)
GroupKey = NewType(
    "GroupKey", str
)  # "namespace/name" of a PodGroup, "namespace/pod:name" of a pod on its own


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    uid: Uid
    namespace: str
    name: str
    shape: Shape
    labels: Labels
    node: str = ""
    scheduler: str = ""
    group: GroupKey = GroupKey("")  # empty: not ours
    own_group: GroupKey = GroupKey("")  # what `group` is whenever it is ours
    auto: bool = False  # nobody named the group: it follows from the pod
    queue: str = ""
    role: str = ""
    priority: int = 0
    created: str = ""
    phase: str = ""
    gated: bool = False
    foreign_gates: bool = False
    deleting: bool = False
    started: bool = False
    nominated: str = ""
    unschedulable: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def holds_room(self) -> bool:
        return bool(self.node) and self.phase not in ENDED_PHASES

    @property
    def placed(self) -> bool:
        """Counts for its group's quorum: on a node and not on its way out, or done."""
        return (bool(self.node) and not self.deleting and self.phase != "Failed") or self.phase == "Succeeded"

    @property
    def waiting(self) -> bool:
        return not self.node and not self.deleting and self.phase not in ENDED_PHASES

    @property
    def order(self) -> tuple[int, str]:
        """Inside a group: priority, then name."""
        return (-self.priority, self.name)


class Origin(IntEnum):
    """Whose kind of PodGroup it is; where one name has several, the first of these counts."""

    VOLCANO = 0
    PLUGINS = 1  # scheduler-plugins
    NATIVE = 2  # Kubernetes itself


class GroupRecord(msgspec.Struct, frozen=True, gc=False):
    """`min_resources`: what its minMember members ask for together, as its spec says it."""

    key: GroupKey
    namespace: str
    name: str
    uid: str
    queue: str
    min_member: int
    min_task_member: Mapping[str, int]
    priority_class: str = ""
    created: str = ""
    phase: str = ""
    stood_with: int | None = None  # how many members it needed when it stood whole
    admitted: bool = False  # it is noted that Muster admitted its start
    last_reason: str = ""
    fault: str = ""
    min_resources: Resources = {}
    queue_uid: str = ""  # of the queue that took it in
    owner: str = ""  # the UID of its controller
    origin: Origin = Origin.VOLCANO


def is_single(key: GroupKey) -> bool:
    """Whether a key is that of a pod on its own (":" cannot be in an object's name)."""
    return "/pod:" in key


def group_of_owner(namespace: str, uid: str) -> GroupKey:
    """The group of the pods of a controller that name none."""
    return GroupKey(f"{namespace}/{group_name_of(uid)}")
