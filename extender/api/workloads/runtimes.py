"""Objects that have the templates of jobs which have none themselves."""

from collections.abc import Iterable
from typing import NamedTuple

from extender.api.workloads.shape import Json, RuntimeKind, WorkloadRow, at, with_spec

_RUNTIME = "runtime"


class RuntimeName(NamedTuple):
    """Name of an object with the templates of jobs. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str

    @property
    def spoken_name(self) -> str:
        """`ClusterTrainingRuntime torch-distributed`, as people say it."""
        return f"{self.kind} {self.name}"


def runtime_named_by(row: WorkloadRow, obj: Json) -> RuntimeName | None:
    """Return the runtime that an object names; None for a kind with its own templates.

    A runtime of an unknown kind is not found anywhere.
    """
    reference = row.runtime
    if reference is None:
        return None
    kind = str(at(obj, reference.kind) or reference.kinds[0].kind)
    group = str(at(obj, reference.group) or reference.kinds[0].group)
    known = next((listed for listed in reference.kinds if (listed.kind, listed.group) == (kind, group)), None)
    namespace = (obj.get("metadata") or {}).get("namespace") or "" if known and known.namespaced else ""
    name = str(at(obj, reference.name) or "")
    return RuntimeName(kind if known else f"{kind}.{group}", str(namespace), name)


def runtime_kind(row: WorkloadRow, name: RuntimeName) -> RuntimeKind | None:
    kinds = row.runtime.kinds if row.runtime else ()
    return next((kind for kind in kinds if kind.kind == name.kind), None)


def runtime_kinds(rows: Iterable[WorkloadRow]) -> list[RuntimeKind]:
    """All that jobs of these kinds may name."""
    kinds = (kind for row in rows if row.runtime for kind in row.runtime.kinds)
    return list({kind.kind: kind for kind in kinds}.values())


def with_runtime(obj: Json, spec: Json | None) -> Json:
    """Return a copy that has the spec of its runtime as `spec.runtime`; None: the runtime does not exist."""
    return with_spec(obj, **{_RUNTIME: spec})


def is_whole(row: WorkloadRow, obj: Json) -> bool:
    """Return whether an object has its templates, or its runtime was looked for."""
    return row.runtime is None or _RUNTIME in (obj.get("spec") or {})


def runtime_in(row: WorkloadRow, obj: Json) -> Json | None:
    """Return the runtime that `with_runtime` added, if any.

    Raises:
        ValueError: The runtime does not exist.
    """
    spec = obj.get("spec") or {}
    if _RUNTIME in spec and spec[_RUNTIME] is None:
        named = runtime_named_by(row, obj)
        raise ValueError(f"there is no {named.spoken_name if named else 'such runtime'}")
    found = spec.get(_RUNTIME)
    return dict(found) if found is not None else None
