"""Reading what `-f` names: files and folders of objects, in the order in which they can be created.

All faults are told, each as FILE:LINE, with what is allowed there. What is left out, or not done as in a real
cluster, is told in notes of the same form.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from extender.api.workloads.children import MALFORMED, count_pods, kind_of, suspended
from extender.api.workloads.shape import KindName
from extender.api.workloads.table import WORKLOADS
from extender.sim.apiserver.admission import FIRST_OBJECTS
from extender.sim.apiserver.kinds import BY_NAME, KINDS, NAMESPACES, Json, ResourceKind
from extender.sim.apiserver.unsupported_fields import MOST_PODS
from extender.sim.files import namespaces
from extender.sim.files.amounts import as_texts
from extender.sim.files.faults import faults_of, nameless
from extender.sim.files.fields import fields_of
from extender.sim.files.forms import Form
from extender.sim.files.reading import Document, documents, shown
from extender.sim.files.skipping import note
from extender.sim.files.workload_fields import form_of


class InvalidManifests(ValueError):
    """What has to be corrected, a line for each fault."""


class Manifest(NamedTuple):
    """One object, and where it stands. `kind` is None if the API server does not serve it: then it is a
    workload, and its pods are made all the same."""

    kind: ResourceKind | None
    object: Json
    where: str

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name") or self.object["metadata"].get("generateName"))


class Manifests(NamedTuple):
    """What is created, and what is to be told about it."""

    objects: list[Manifest]
    notes: list[str]


def load(paths: Sequence[Path], create_namespaces: bool = False) -> Manifests:
    """Namespaces and queues before what is in them, workloads last. Raises InvalidManifests."""
    faults: list[str] = []
    notes: list[str] = []
    given = [each for path in paths for each in documents(path, faults)]
    found = [each for document in given for each in _manifest(document, faults, notes)]
    faults += [*_twice(found), *_counted(found, notes)]
    missing = namespaces.missing((each.object, each.where) for each in found)
    if not create_namespaces:
        faults += [namespaces.fault(name, at) for name, at in missing.items()]
    if not found and not faults:
        faults += [*notes, f"{', '.join(map(shown, paths))}: no objects in there that run or wait"]
    if faults:
        raise InvalidManifests("\n".join(faults))
    found += [Manifest(NAMESPACES, namespaces.namespace(name), at) for name, at in missing.items()]
    return Manifests(sorted(found, key=_order), notes)


def _order(manifest: Manifest) -> int:
    """Pods of workloads come when everything else is there."""
    is_workload = manifest.kind is None or kind_of(manifest.object) is not None
    return len(KINDS) if manifest.kind is None or is_workload else KINDS.index(manifest.kind)


def _manifest(document: Document, faults: list[str], notes: list[str]) -> Iterator[Manifest]:
    """Nothing, if it is at fault or left out."""
    wrong = list(_unnamed(document))
    form = None if wrong else _form(_kind_name(document.object))
    if form is not None:
        wrong = [*faults_of(document, form), *nameless(document)]
    elif not wrong:
        notes.append(note(document))
    faults.extend(wrong)
    kind = BY_NAME.get(_kind_name(document.object))
    if form is not None and not wrong and not _is_there(kind, document.object):
        yield Manifest(kind, as_texts(document.object), document.where())


def _kind_name(obj: Json) -> KindName:
    return str(obj.get("apiVersion")), str(obj.get("kind"))


def _unnamed(document: Document) -> Iterator[str]:
    for field in ("apiVersion", "kind"):
        if not isinstance(document.object.get(field), str):
            yield f"{document.where()}: {field}: missing; every object has an apiVersion and a kind"


def _form(name: KindName) -> dict[str, Form] | None:
    if name in WORKLOADS:
        return form_of(name)
    return fields_of(BY_NAME[name]) if name in BY_NAME else None


def _is_there(kind: ResourceKind | None, obj: Json) -> bool:
    """Every cluster has it: to name it again changes nothing."""
    return any(
        kind is each and obj["metadata"].get("name") == first["metadata"]["name"]
        for each, first in FIRST_OBJECTS
    )


def _twice(found: Sequence[Manifest]) -> Iterator[str]:
    """Objects of one kind, namespace and name."""
    first: dict[tuple[str, ...], str] = {}
    for each in found:
        meta = each.object["metadata"]
        key = (*_kind_name(each.object), namespaces.of(each.object), meta.get("name") or each.where)
        if key in first:
            yield f'{each.where}: {key[1]} "{each.name}" already exists: it is at {first[key]}, too'
        first.setdefault(key, each.where)


def _counted(found: Sequence[Manifest], notes: list[str]) -> Iterator[str]:
    """What is wrong with the numbers of pods; what there is to tell of workloads."""
    left = MOST_PODS
    for each in found:
        workload = kind_of(each.object)
        if workload is None:
            continue
        subject = f'{each.where}: {workload.kind} "{each.name}"'
        try:
            count, remark = count_pods(each.object), workload.remark(each.object)
        except MALFORMED as fault:
            yield f"{subject}: its pods are not known: {fault_text(fault)}"
            continue
        if count > left:
            yield f"{subject}: asks for {count} pods; of all workloads together at most {MOST_PODS} are made"
        left -= min(count, left)
        notes += [f"{subject}: {note}" for note in _remarks(each.object, count, remark) if note]


def fault_text(fault: Exception) -> str:
    """What Python says of a field of another form than its kind has helps nobody."""
    return str(fault) if type(fault) is ValueError else "a field has a form that this kind does not know"


def _remarks(obj: Json, count: int, remark: str) -> Iterator[str]:
    if suspended(obj):
        yield "" if _kind_name(obj) in BY_NAME else "suspended: no pods are made"
    elif count == 0:
        yield remark or "asks for no pods"
    else:
        yield remark
