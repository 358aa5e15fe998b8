"""Records of pods and PodGroups, made from wire objects, and the marks that Muster leaves on a PodGroup."""

from collections.abc import Mapping

from msgspec.structs import replace

from extender.api import keys
from extender.api.keys import ADMITTED, STOOD_WHOLE, STOOD_WHOLE_NOTE
from extender.api.objects import queues
from extender.api.objects.base import Condition, Meta, condition
from extender.api.objects.queues import NativePodGroup, PluginsPodGroup, PodGroup, PodGroupSpec
from extender.api.units import BadQuantity, is_count
from extender.domain.model import ownership
from extender.domain.model.queue_of_group import local_queue_label, noted_queue, noted_use
from extender.domain.model.reasons import Reason
from extender.domain.model.records import (
    GroupKey,
    GroupRecord,
    Origin,
)
from extender.domain.model.resources import asked
from extender.domain.model.run_history import checkpoint_of, run_time_of, series_of

# ---- Marks on a PodGroup survive a restart: that the group stood whole, or that its start was admitted.
#
# A mark names the UID of the object that it was written on, as the note of the queue does, so a copy that is
# applied from a file carries no valid mark. A PodGroup has no status subresource, so users who may change it
# may write into its status too: marks count only where the API server lets only Muster write them
# (manifests/marks.yaml).

_MOST_NOTES = 256 * 1024 - 1024  # bytes of an object's annotations; the API server takes 256 KiB
TOO_MANY_NOTES = f"more than {_MOST_NOTES} bytes, to which Muster can add none"
_MESSAGE = "all members that it needs ran at the same time: "
_DIGITS = 10  # of the largest minMember


def whole_condition(group_uid: str, members: int) -> Condition:
    """For the status of Volcano's PodGroups. `members`: how many it needed."""
    return Condition(STOOD_WHOLE, "True", "AllMembersStarted", _MESSAGE + _note(group_uid, members))


def whole_members(condition: Condition, group_uid: str) -> int | None:
    """How many members the group needed when it stood whole; None unless the condition says that it did."""
    if condition.status != "True" or not condition.message.startswith(_MESSAGE):
        return None
    return _number(condition.message.removeprefix(_MESSAGE), group_uid)


def whole_note(group_uid: str, members: int) -> dict[str, str]:
    """The annotation for PodGroups whose status another controller writes."""
    return {STOOD_WHOLE_NOTE: _note(group_uid, members)}


def noted_members(group: Meta) -> int | None:
    """As `whole_members`, from the annotation of `whole_note`."""
    return _number((group.annotations or {}).get(STOOD_WHOLE_NOTE, ""), group.uid)


def admitted_note(group_uid: str, is_admitted: bool) -> dict[str, str | None]:
    """The note of a start that was admitted and is not whole yet; its removal if not `is_admitted`."""
    return {ADMITTED: group_uid if is_admitted else None}


def notes_admitted(group: Meta) -> bool:
    noted = (group.annotations or {}).get(ADMITTED, "")
    return bool(noted) and noted == group.uid


def lost_note(group_uid: str, seconds: int) -> dict[str, str]:
    """The annotation for the work that evictions have cost a group."""
    return {keys.LOST_WORK: _note(group_uid, seconds)}


def noted_lost(group: Meta) -> int:
    """The seconds of work that evictions have cost it, as its mark says."""
    return _number((group.annotations or {}).get(keys.LOST_WORK, ""), group.uid) or 0


def _note(group_uid: str, number: int) -> str:
    return f"{number}/{group_uid}"


def _number(noted: str, group_uid: str) -> int | None:
    number, _, uid = noted.partition("/")
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
    return int(number) if is_number and uid and uid == group_uid else None


def any_group_record(group: PodGroup | PluginsPodGroup | NativePodGroup) -> GroupRecord:
    match group:
        case PluginsPodGroup(metadata=meta, spec=spec):
            # The same fields as Volcano's, except the queue, which an annotation or a label names.
            record = group_record(PodGroup(meta, replace(spec, queue=ownership.queue_named_by(meta))))
            return replace(record, origin=Origin.PLUGINS, stood_with=noted_members(meta), queue_uid="")
        case NativePodGroup():
            return _native_record(group)
    return group_record(group)


def _native_record(group: NativePodGroup) -> GroupRecord:
    gang = group.spec.scheduling_policy.gang
    spec = PodGroupSpec(
        min_member=gang.min_count if gang else 1,
        queue=ownership.queue_named_by(group.metadata),
        priority_class_name=group.spec.priority_class_name,
    )
    mode = group.spec.disruption_mode
    reason, scheduled = "", condition(group.status.conditions, keys.INITIALLY_SCHEDULED)
    if scheduled is not None:  # what `native_condition` was made from
        is_started = scheduled.status == "True"
        reason = keys.SCHEDULED if is_started else scheduled.message.partition(":")[0]
    return replace(
        group_record(PodGroup(group.metadata, spec)),
        origin=Origin.ALPHA if isinstance(group, queues.AlphaPodGroup) else Origin.NATIVE,
        stood_with=noted_members(group.metadata),
        queue_uid="",
        goes_whole=mode == "PodGroup" or "all" in (mode or ()),
        last_reason=reason,
    )


def native_condition(reason: str) -> dict[str, str]:
    """Why a group of Kubernetes itself waits, without numbers, which change; or that it has started."""
    started = reason == keys.SCHEDULED
    return {
        "type": keys.INITIALLY_SCHEDULED,
        "status": str(started),
        "reason": reason if started else keys.UNSCHEDULABLE,
        "message": "" if started else f"{reason}: {Reason(reason).meaning}",
    }


def noted_timeouts(meta: Meta) -> int:
    """How often in a row its job did not get going in time, or its start was undone."""
    written = (meta.annotations or {}).get(keys.START_TIMEOUTS, "")
    return int(written) if is_count(written) else 0


def group_record(group: PodGroup) -> GroupRecord:
    """Faults of the specification are kept in `fault`: this group waits, and no other is affected."""
    meta, spec = group.metadata, group.spec
    annotations, roles = meta.annotations or {}, spec.min_task_member or {}
    min_resources, fault = {}, ""
    try:
        min_resources = asked(spec.min_resources)
    except BadQuantity as bad:
        fault = f"spec.minResources: {bad}"
    if leaves_no_room(annotations):
        fault = f"metadata.annotations: {TOO_MANY_NOTES}"
    counts = {"minMember": spec.min_member} | {
        f"minTaskMember[{ownership.name_of(role)}]": n for role, n in roles.items()
    }
    negative = (f"spec.{name} is {n}; it must be 0 or more" for name, n in counts.items() if n < 0)
    # What it came from is its controller, whose name says more than that of the group.
    owner = ownership.controller_of(meta.owner_references)
    kind, source = (owner.kind, owner.name) if owner is not None else ("PodGroup", meta.name)
    made_for = ownership.stands_for(meta.name, meta.owner_references)
    return GroupRecord(
        key=GroupKey(f"{meta.namespace}/{meta.name}"),
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        queue=ownership.name_of(spec.queue),
        local_queue=local_queue_label(meta),
        min_member=max(spec.min_member, 0),
        min_task_member={ownership.name_of(role): n for role, n in roles.items() if n > 0},
        priority_class=spec.priority_class_name,
        created=meta.creation_timestamp or "",
        phase=group.status.phase,
        stood_with=whole_members(_condition(group, keys.STOOD_WHOLE), meta.uid),
        admitted=notes_admitted(meta),
        last_reason=_condition(group, keys.SCHEDULED).reason,
        fault=next(negative, fault),
        min_resources=min_resources,
        owner=owner.uid if owner is not None else "",
        held=annotations.get(keys.HOLD) == "true",
        run_time=run_time_of(meta),
        start_timeouts=noted_timeouts(meta),
        submitter=annotations.get(keys.SUBMITTER, ""),
        preemptable=allows_preemption(meta),
        checkpoint=checkpoint_of(meta),
        lost_work=noted_lost(meta),
        queue_uid=noted_queue(meta),
        may_use=noted_use(meta, "PodGroup"),
        series=series_of(meta.namespace, ownership.name_of(kind), ownership.name_of(source)),
        stands_for=ownership.name_of(made_for.spoken_name) if made_for is not None else "",
    )


def _condition(group: PodGroup, kind: str) -> Condition:
    return condition(group.status.conditions, kind) or Condition(kind, "Unknown")


def leaves_no_room(annotations: Mapping[str, str]) -> bool:
    """For marks, and what a Binding adds, which the API server does not measure there: any later change of
    such a pod would be refused, its eviction, too."""
    return len("".join((*annotations, *annotations.values())).encode()) > _MOST_NOTES


def allows_preemption(meta: Meta) -> bool:
    written = (meta.annotations or {}).get(keys.PREEMPTABLE) or (meta.labels or {}).get(keys.PREEMPTABLE)
    return written != "false"
