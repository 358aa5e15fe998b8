"""Effects of changes that users name in terms, such as `nodes=+2` or `queue.weight=research:4`.

Nothing is written to the cluster.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api.units import BadQuantity, listed
from extender.domain.explain.hypotheses import best_node, snapshot_without, with_group, with_nodes, with_queue
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import offered
from extender.domain.queues.records import QueueRecord
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, GroupDecision, message_of
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.snapshot import Snapshot

_MAX_INT = 2**31 - 1  # largest int32
_MAX_NODE_COUNT = 1000
_MAX_TERMS = 20
_LONGEST = 1000  # number of characters of a term; names of two objects and a resource have fewer
_MAX_QUOTED = 200  # number of characters of a term that an error repeats
_SHOWN = 8  # number of names in one sentence
_MAX_OTHERS = 20


class BadTerm(ValueError):
    """Error of an invalid term. Its text names the term and the allowed values."""


class Supposition(NamedTuple):
    """Parsed term: a change to suppose."""

    text: str  # the term as written
    field: str  # `queue.capability`, one of ALLOWED
    subject: str  # name of the queue, group or node; empty if there is none
    value: str
    resource: str = ""  # `cpu` of `queue.capability.cpu`

    def error(self, advice: str) -> BadTerm:
        return BadTerm(f"{self.text[:_MAX_QUOTED]!r}: {advice}")


_RECORD_FIELDS = {
    "capability": "capability",
    "deserved": "deserved",
    "guarantee": "guarantee",
    "borrowingLimit": "borrowing_limit",
    "lendingLimit": "lending_limit",
}  # fields of a queue's spec and of its record
ALLOWED: Mapping[str, str] = {
    "nodes": "nodes=+N or nodes=+N:LIKE-NODE",
    "queue.weight": "queue.weight=QUEUE:N",
    "queue.priority": "queue.priority=QUEUE:N",
    **{f"queue.{field}": f"queue.{field}.RESOURCE=QUEUE:AMOUNT" for field in _RECORD_FIELDS},
    "flavor": "flavor=QUEUE:FLAVOR",
    "minMember": "minMember=N or minMember=[NAMESPACE/]GROUP:N",
    "priority": "priority=N or priority=[NAMESPACE/]GROUP:N",
    "delete": "delete=KIND/[NAMESPACE/]NAME of a podgroup, a pod that is in none, or a workload",
}


def suppositions(texts: Sequence[str]) -> list[Supposition]:
    """Return the changes that texts describe.

    Raises:
        BadTerm: A text is not a valid term.
    """
    if len(texts) > _MAX_TERMS:
        raise BadTerm(f"{len(texts)} terms; at most {_MAX_TERMS} are allowed")
    return [_parse_term(text) for text in texts]


def _parse_term(text: str) -> Supposition:
    """Return the change that a text such as `queue.capability.cpu=team:8` describes."""
    name, equals_sign, value = text.partition("=")
    field, resource = name, ""
    if len(text) > _LONGEST:
        raise Supposition(text, name, "", value).error(f"{len(text)} characters: must be at most {_LONGEST}")
    if name.startswith("queue."):
        _, kind, resource = [*name.split(".", 2), ""][:3]
        field = f"queue.{kind}"
    if not equals_sign or field not in ALLOWED or bool(resource) is not ("RESOURCE" in ALLOWED[field]):
        allowed_text = ALLOWED[field] if field in ALLOWED else listed([*ALLOWED.values()], len(ALLOWED))
        raise Supposition(text, name, "", value).error(f"must be {allowed_text}")
    if field == "delete":
        subject, value = "", value
    elif field == "nodes":
        value, _, subject = value.partition(":")
    else:
        subject, _, value = value.rpartition(":")
    return Supposition(text, field, subject, value, resource)


def with_terms(snapshot: Snapshot, terms: Iterable[Supposition], group: GroupKey | None = None) -> Snapshot:
    """Return the snapshot with all changes applied in order.

    `group` is the group that terms concern if they name none.

    Raises:
        BadTerm: A term names an unknown object.
    """
    for term in terms:
        snapshot = _CHANGE_FUNCTIONS[term.field.partition(".")[0]](snapshot, term, group)
    return snapshot


def _add_nodes(snapshot: Snapshot, term: Supposition, group: GroupKey | None) -> Snapshot:
    """Return the snapshot with additional nodes, like the named node or the best node for the group."""
    count = _number(term, term.value.removeprefix("+") if term.value[:1] == "+" else "", 1, _MAX_NODE_COUNT)
    if term.subject:
        row = snapshot.nodes.row_of.get(term.subject)
        if row is None or snapshot.nodes.nodes[row] is None:
            raise term.error(_not_found("node", term.subject, snapshot.nodes.row_of))
    elif group is None:
        raise term.error("the node to copy is missing: must be nodes=+N:LIKE-NODE")
    else:
        row = best_node(snapshot, snapshot.groups[group])
        if row is None:
            raise term.error("no node could hold its members even when empty: name one, nodes=+N:LIKE-NODE")
    return with_nodes(snapshot, row, count)


def _set_queue_field(snapshot: Snapshot, term: Supposition, group: GroupKey | None) -> Snapshot:
    """Return the snapshot with another value of a queue's field, or another amount of one resource."""
    record, field = _find_record(snapshot, term), term.field.removeprefix("queue.")
    if not term.resource:
        minimum = 1 if field == "weight" else -_MAX_INT
        return with_queue(snapshot, replace(record, **{field: _number(term, term.value, minimum)}))
    try:
        amount = offered({term.resource: term.value})
    except BadQuantity as fault:
        raise term.error(str(fault)) from fault
    if min(amount.values(), default=-1) < 0:
        hint = (
            "the amount has to be 0 or more" if amount else f"{term.resource} is no resource that is counted"
        )
        raise term.error(f"{hint}, such as {term.field}.cpu={term.subject}:8")
    old_amounts = getattr(record, _RECORD_FIELDS[field]) or {}
    return with_queue(snapshot, replace(record, **{_RECORD_FIELDS[field]: {**old_amounts, **amount}}))


def _add_flavor(snapshot: Snapshot, term: Supposition, group: GroupKey | None) -> Snapshot:
    """Return the snapshot with one more flavor of a queue and of the queues that inherit its flavors.

    The flavor has no limits of its own there.
    """
    record, old = _find_record(snapshot, term), snapshot.queues[term.subject].flavors
    by_name = {flavor.name: flavor for queue in snapshot.queues.values() for flavor in queue.record.flavors}
    if not old:
        raise term.error(f"queue {record.name} has no flavors: it may use all nodes")
    if term.value in (flavor.name for flavor in old):
        raise term.error(f"queue {record.name} has this flavor")
    if term.value not in by_name:
        raise term.error(f"no queue names this flavor: must be {listed(sorted(by_name), _SHOWN)}")
    flavors = (*old, replace(by_name[term.value], amounts={}))
    queues = {
        name: replace(queue, flavors=flavors) if queue.flavors == old and not queue.record.flavors else queue
        for name, queue in snapshot.queues.items()
        if record.name in _ancestors(snapshot, name)
    }
    queues[record.name] = replace(
        snapshot.queues[record.name], record=replace(record, flavors=flavors), flavors=flavors
    )
    return replace(snapshot, queues={**snapshot.queues, **queues})


def _ancestors(snapshot: Snapshot, name: str) -> list[str]:
    """Return a queue and the queues above it, as their specifications say."""
    names: list[str] = []
    while name in snapshot.queues and name not in names:
        names.append(name)
        name = snapshot.queues[name].record.parent
    return names


def _set_min_member(snapshot: Snapshot, term: Supposition, asked_group: GroupKey | None) -> Snapshot:
    """Return the snapshot with another minMember of a group."""
    group = _find_group(snapshot, term, asked_group)
    return with_group(snapshot, replace(group, min_member=_number(term, term.value, 1)))


def _set_priority(snapshot: Snapshot, term: Supposition, asked_group: GroupKey | None) -> Snapshot:
    """Return the snapshot with another priority of a group."""
    group = _find_group(snapshot, term, asked_group)
    return with_group(snapshot, replace(group, priority=_number(term, term.value, -_MAX_INT)))


def _delete(snapshot: Snapshot, term: Supposition, asked_group: GroupKey | None) -> Snapshot:
    """Return the snapshot without a group or pod. The group in question cannot be deleted."""
    kind, _, name = term.value.partition("/")
    if not (kind and name):
        raise term.error(f"must be {ALLOWED['delete']}")
    full_name = _full_name(term, name, asked_group)
    deleted_pods = [pod.uid for pod in snapshot.other_pods if pod.key == full_name] if kind == "pod" else []
    ended_groups = [key for key, group in snapshot.groups.items() if _has_name(group, kind, full_name)]
    if not (deleted_pods or ended_groups):
        unknown_text = f"there is no {kind} {full_name} that Muster knows a group of"
        raise term.error(f"{unknown_text}: must be {ALLOWED['delete']}")
    if asked_group in ended_groups:
        raise term.error("this is what is asked about")
    return snapshot_without(snapshot, frozenset(ended_groups), frozenset(deleted_pods))


def _has_name(group: GroupInfo, kind: str, full_name: str) -> bool:
    """Return whether a group or its owner has this kind and this full name, `namespace/name`."""
    if kind == "podgroup":
        return group.key == full_name
    namespace, _, name = full_name.partition("/")
    return group.display_name == f"{namespace}/{kind}/{name}" or (
        kind == "pod" and group.key == f"{namespace}/pod:{name}"
    )


def _full_name(term: Supposition, name: str, asked_group: GroupKey | None) -> str:
    """Return the name with a namespace.

    A name without a namespace gets the namespace of the group that is asked about.
    """
    if "/" not in name and asked_group is None:
        raise term.error(f"the namespace is missing: must be {ALLOWED[term.field]}, with NAMESPACE")
    return name if "/" in name or asked_group is None else f"{asked_group.partition('/')[0]}/{name}"


def _find_group(snapshot: Snapshot, term: Supposition, group: GroupKey | None) -> GroupInfo:
    """Return the group that a term names, or the group in question. Raises BadTerm."""
    key = GroupKey(_full_name(term, term.subject, group)) if term.subject or group is None else group
    if key not in snapshot.groups:
        names = (name for name in snapshot.groups if name.startswith(f"{key.partition('/')[0]}/"))
        raise term.error(_not_found("podgroup", key, names))
    return snapshot.groups[key]


def _find_record(snapshot: Snapshot, term: Supposition) -> QueueRecord:
    """Return the record of the queue that a term names.

    Raises:
        BadTerm: The term names no queue, or a queue that does not exist.
    """
    if not term.subject:
        raise term.error(f"must be {ALLOWED[term.field]}")
    queue = snapshot.queues.get(term.subject)
    if queue is None or not queue.exists:
        raise term.error(
            _not_found("queue", term.subject, (name for name, info in snapshot.queues.items() if info.exists))
        )
    return queue.record


def _not_found(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the message that there is no such object, with the names that exist."""
    known = sorted(names)
    return f"there is no {kind} {name}; there are {listed(known, _SHOWN)}" if known else f"there is no {kind}"


def _number(term: Supposition, text: str, minimum: int, maximum: int = _MAX_INT) -> int:
    """Return a whole number in ASCII digits. `int` would also accept `1_000` and digits of other scripts."""
    number = int(text) if re.fullmatch(r"-?[0-9]{1,10}", text) else None
    if number is None or not minimum <= number <= maximum:
        raise term.error(f"must be {ALLOWED[term.field]}, with N a whole number from {minimum} to {maximum}")
    return number


_CHANGE_FUNCTIONS: Mapping[str, Callable[[Snapshot, Supposition, GroupKey | None], Snapshot]] = {
    "nodes": _add_nodes,
    "queue": _set_queue_field,
    "flavor": _add_flavor,
    "minMember": _set_min_member,
    "priority": _set_priority,
    "delete": _delete,
}


class Outlook(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Outlook of a group by one decision."""

    verdict: Verdict
    reason: str = ""  # a Reason; empty if no member waits
    message: str = ""  # numbers and position, as in the group's condition
    position: int = 0  # position in line; 0 if the group is not in line
    evicted: int = 0  # number of its pods that are evicted for others


class ChangedGroup(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Group with its outlook without (`before`) and with (`after`) the change."""

    group: GroupKey
    queue: str
    change: str  # one of CHANGES; empty if there is no relevant difference
    before: Outlook
    after: Outlook
    called: str = ""  # name for users


STARTS = "starts"
CHANGES = (  # ordered from the most important
    STARTS,
    "no longer starts",
    "gives up capacity",
    "keeps its capacity",
    "is further back",
    "moves up",
    "waits for something else",
)


def _change(old: Outlook, new: Outlook) -> str:
    """Return how a group's outlook changes, as the predicate of a sentence; empty if it hardly changes."""
    if old.verdict is not new.verdict:
        if Verdict.WAITING not in (old.verdict, new.verdict):
            return ""
        return "no longer starts" if new.verdict is Verdict.WAITING else STARTS
    if new.evicted != old.evicted:
        return "gives up capacity" if new.evicted > old.evicted else "keeps its capacity"
    if old.position and new.position and old.position != new.position:
        return "is further back" if new.position > old.position else "moves up"
    return "waits for something else" if old.reason != new.reason else ""


def changed_groups(snapshot: Snapshot, before: Decisions, after: Decisions) -> list[ChangedGroup]:
    """Return all groups with their outlook in both decisions, the most important changes first.

    Both decisions cover the groups of the snapshot.
    """
    losses = [Counter(item.victim.group for item in result.evictions.values()) for result in (before, after)]
    items = []
    for key in before.groups.keys() & after.groups.keys() & snapshot.groups.keys():
        old, new = (
            _outlook(side.groups[key], loss[key]) for side, loss in zip((before, after), losses, strict=True)
        )
        display_name = snapshot.groups[key].display_name
        items.append(ChangedGroup(key, after.groups[key].queue, _change(old, new), old, new, display_name))
    ranks = (*CHANGES, "")
    return sorted(items, key=lambda change: (ranks.index(change.change), change.after.position, change.group))


def _outlook(decision: GroupDecision, evicted_count: int) -> Outlook:
    reason, message = str(decision.reason or ""), message_of(decision)
    return Outlook(decision.verdict, reason, message, decision.position, evicted_count)


_CONTINUATIONS = {
    Verdict.STARTING: "would be starting, as it is now",
    Verdict.RUNNING: "would go on running",
    Verdict.ENDED: "has ended",
}


def future(group: ChangedGroup) -> str:
    """Return the predicate of a sentence about the group, such as `would still wait: NoRoom`."""
    before, after = group.before, group.after
    if group.change == STARTS:
        return f"would start now. Without that, it waits: {before.reason}."
    if after.verdict is not Verdict.WAITING:
        evicted_text = f", and give up the capacity of {after.evicted} of its pods" if after.evicted else ""
        return f"{_CONTINUATIONS[after.verdict]}{evicted_text}."
    if before.verdict is not Verdict.WAITING:
        return f"would not start now, as it does without that: {after.reason}."
    position_text = (
        f", at position {after.position} instead of {before.position}"
        if before.position and after.position and before.position != after.position
        else ""
    )
    reason_text = f" instead of {before.reason}" if after.reason != before.reason else ""
    return f"would still wait{position_text}: {after.reason}{reason_text}."


class WhatIf(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Immediate effects of supposed changes.

    Attributes:
        terms: The terms as written.
        group: The group in question, even without a difference; None if there is no such group.
        others: The other groups whose outlook changes.
    """

    terms: tuple[str, ...]
    group: ChangedGroup | None
    others: tuple[ChangedGroup, ...] = ()
    more_others: int = 0  # number of changed groups that are left out


def what_if(snapshot: Snapshot, terms: Sequence[Supposition], asked_group: GroupKey | None = None) -> WhatIf:
    """Decide without and with the terms, both times without a previous cycle. Raises BadTerm."""
    supposed_snapshot = with_terms(snapshot, terms, asked_group)
    old_decisions, new_decisions = decide(snapshot), decide(supposed_snapshot)
    changes = changed_groups(supposed_snapshot, old_decisions, new_decisions)
    own_change = next((change for change in changes if change.group == asked_group), None)
    others = [change for change in changes if change.change and change.group != asked_group]
    texts = tuple(term.text for term in terms)
    return WhatIf(texts, own_change, tuple(others[:_MAX_OTHERS]), max(len(others) - _MAX_OTHERS, 0))
