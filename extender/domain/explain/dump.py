"""A dump: the state on which the newest decisions were made, with them, to be decided on again elsewhere, and
under other names."""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.api.units import timestamp_at
from extender.domain.explain.forms import Forms, Misread
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.memory import notes_of
from extender.domain.snapshot.decisions import Decisions, GroupDecision, course
from extender.domain.snapshot.snapshot import Snapshot

KIND = "MusterDump"


class InvalidDump(ValueError):
    """For people."""


class DumpFile(msgspec.Struct, frozen=True, kw_only=True):
    """What is written: JSON. The last three are as `Forms` has them."""

    kind: str = KIND
    muster: str  # the version that wrote it, which alone reads it
    python: str
    taken: str  # the moment of the snapshot, as a timestamp
    slept: int  # how many groups' decisions were taken over from the round before
    renamed: bool = False  # its names are hashed, and the decisions made anew
    otherwise: int = 0  # on how many groups something else was decided then
    configuration: Mapping[str, Any]
    shapes: Sequence[Any]
    decisions: Mapping[str, Any]
    snapshot: Mapping[str, Any]


class Dump(msgspec.Struct, frozen=True):
    file: DumpFile
    snapshot: Snapshot
    decisions: Decisions


def dump(decisions: Decisions, versions: Mapping[str, str], configuration: Mapping[str, Any]) -> bytes | None:
    """Of decisions that decide() has just made; None where nothing is decided yet. Takes two seconds for
    40,000 pods, and no lock: what it reads never changes. `versions`: of `muster` and `python`."""
    if (notes := notes_of(decisions)) is None:
        return None
    forms, snapshot = Forms(), notes.snapshot
    written = DumpFile(
        muster=versions["muster"],
        python=versions["python"],
        taken=timestamp_at(snapshot.epoch + snapshot.now),
        slept=len(snapshot.groups) - len(notes.judged.round_.decided),
        configuration=configuration,
        decisions=forms.write(Decisions, _said(decisions)),
        snapshot=forms.write(Snapshot, snapshot),
        shapes=forms.write_shapes(),
    )
    return msgspec.json.encode(written)


def read_dump(raw: bytes, version: str) -> Dump:
    """Raises InvalidDump."""
    try:
        written = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise InvalidDump(f"it is no JSON, or was cut off: {fault}") from fault
    if not isinstance(written, dict) or written.get("kind") != KIND:
        raise InvalidDump(f"its kind is not {KIND}")
    if written.get("muster") != version:
        raise InvalidDump(f"muster {written.get('muster')} wrote it, and this is muster {version}")
    forms = Forms()
    try:
        file = msgspec.convert(written, DumpFile)
        forms.read_shapes(file.shapes)
        return Dump(file, forms.read(Snapshot, file.snapshot), forms.read(Decisions, file.decisions))
    except (msgspec.ValidationError, Misread) as fault:
        raise InvalidDump(f"it is not as muster wrote it: {fault}") from fault


# ---- deciding again


class ChangedDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one group; None: there is no decision on it."""

    group: GroupKey
    before: GroupDecision | None = None
    now: GroupDecision | None = None


class Replay(msgspec.Struct, frozen=True):
    same: bool  # byte for byte: what is decided on groups, queues, evictions and moments
    differences: tuple[ChangedDecision, ...]  # by group
    decisions: Decisions


def replayed(snapshot: Snapshot, before: Decisions) -> Replay:
    """Decided from nothing, and from what is remembered of that, where only what had changed is judged again:
    both must be the same."""
    now = decide(snapshot)
    again = decide(replace(snapshot, version=snapshot.version + 1), now)
    same = as_bytes(before) == as_bytes(now) == as_bytes(replace(again, version=now.version))
    return Replay(same, differences(before, now), now)


def differences(before: Decisions, now: Decisions) -> tuple[ChangedDecision, ...]:
    keys = sorted(before.groups.keys() | now.groups.keys())
    pairs = (ChangedDecision(key, before.groups.get(key), now.groups.get(key)) for key in keys)
    return tuple(pair for pair in pairs if pair.before != pair.now)


def as_bytes(decisions: Decisions) -> bytes:
    """What is decided, equal for decisions that are."""
    return msgspec.json.encode(Forms(sorts=True).write(Decisions, _said(decisions)), order="sorted")


def _said(decisions: Decisions) -> Decisions:
    """Without how it came about."""
    return replace(decisions, serial=0, turned=(), renumbered=(), memory=None)


# ---- other names

# Words by which something is decided, or that stand in selectors.
_WORDS = """
    default root pod cpu memory pods ephemeral-storage of 0.0.0.0 muster
    Pending Inqueue Running Completed Unknown Aborted Succeeded Failed Unschedulable SchedulingGated
    capability deserved guarantee borrowing_limit lending_limit
    Open Closed Closing Hold HoldAndDrain Pack Spread traverse fifo priority rotation mixed fair
    PodDisruptionBudgets Preemptable NoSchedule NoExecute PreferNoSchedule TCP UDP SCTP all
    In NotIn Exists DoesNotExist Gt Lt Equal metadata.name null true false
    key operator values matchLabels matchExpressions matchFields
"""
_PARTS = re.compile(
    r"(?P<kept>\d{4}-\d\d-\d\dT[\d:.+-]+Z?|(?:[a-z0-9-]+\.)*(?:kubernetes|k8s)\.io/[\w.-]+)"
    r"|[^\x00-,/:-@\[-^`{-\x7f]+"
)  # moments and Kubernetes' own keys; and whatever is neither a space nor a sign that separates


class Pseudonyms:
    """Texts with each part in its hashed form, but for the words that are kept: whatever nobody knows to be
    none is a name. Equal parts stay equal, wherever they stand."""

    def __init__(self, hashed: Callable[[str], str], resources: Sequence[str]) -> None:
        self._hashed = hashed
        kept = _PARTS.finditer(" ".join([_WORDS, *resources]))
        self._known: dict[str, str] = {found[0]: found[0] for found in kept}

    def __call__(self, text: str) -> str:
        return _PARTS.sub(self._part, text)

    def _part(self, found: re.Match[str]) -> str:
        part = found[0]
        if found["kept"] or part.lstrip("-").isdecimal():
            return part
        if part not in self._known:
            self._known[part] = self._hashed(part)
        return self._known[part]


def keyed_hash(key: bytes) -> Callable[[str], str]:
    """`key`: secret, and of one dump alone, or names could be tried out."""
    return lambda part: f"x{blake2b(part.encode(), digest_size=6, key=key).hexdigest()}"


def renamed(found: Dump, hashed: Callable[[str], str]) -> bytes:
    """The dump under other names, with what is decided under them; without the configuration. Where names
    decide who comes first, something else may be decided."""
    names = Pseudonyms(hashed, found.snapshot.dimensions)
    forms, again = Forms(renamed=names), Forms()
    snapshot = msgspec.json.encode(forms.write(Snapshot, found.snapshot))
    again.read_shapes(shapes := forms.write_shapes())
    decisions = decide(again.read(Snapshot, msgspec.json.decode(snapshot)))
    pairs = ((it, decisions.groups.get(GroupKey(names(key)))) for key, it in found.decisions.groups.items())
    return msgspec.json.encode(
        replace(
            found.file,
            renamed=True,
            otherwise=sum(now is None or course(was) != course(now) for was, now in pairs),
            configuration={},
            decisions=again.write(Decisions, _said(decisions)),
            snapshot=msgspec.Raw(snapshot),
            shapes=shapes,
        )
    )
