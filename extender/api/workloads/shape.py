"""Types of the table of workload kinds: rows, paths of fields, and the runtimes that hold templates."""

from collections.abc import Callable, Container, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from extender.api.keys import STARTED

Json = dict[str, Any]
Path = tuple[str, ...]
KindName = tuple[str, str]  # apiVersion, kind
Complete = Callable[[Json], Json]
Remark = Callable[[Json], str]
Annotate = Callable[[Json, str, str], Json]
Counts = Mapping[str, int]  # number of pods by role
Dependent = Callable[[Json, Counts], Container[str]]

MAX_INT = 2**31 - 1  # the maximum of a count: the API's counts have 32 bits
POD, JOB = ("v1", "Pod"), ("batch/v1", "Job")
VOLCANO_JOB = ("batch.volcano.sh/v1alpha1", "Job")
REPLICA_SET, STATEFUL_SET = ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")
TEMPLATE = ("spec", "template")


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Number of children of one part: the number at `path`, or `default`.

    The number is raised to the number at `at_least`, lowered to the number at `at_most`, and multiplied by
    the number at `times`. An empty path changes nothing.
    """

    path: Path = ()
    default: int = 1
    at_least: Path = ()
    at_most: Path = ()
    times: Path = ()

    def read_from(self, part: Json) -> int:
        """Return the count of a part. A negative number counts as 0.

        Raises:
            ValueError: A value is not a 32-bit number.
        """
        number = self._at(part, self.path, self.default)
        number = max(number, self._at(part, self.at_least, number))
        number = min(number, self._at(part, self.at_most, number))
        return max(number * self._at(part, self.times, 1), 0)

    @staticmethod
    def _at(part: Json, path: Path, default: int) -> int:
        """Return the number at a path of a part; `default` if it is absent.

        Raises:
            ValueError: The value is not a 32-bit number.
        """
        number = value_at(part, path) if path else None
        if number is None:
            return default
        if type(number) is not int or abs(number) > MAX_INT:
            field = ".".join(path)
            raise ValueError(f"{field}: invalid value {number!r:.50}: must be a whole number up to {MAX_INT}")
        return number


class Offspring(msgspec.Struct, frozen=True, kw_only=True):
    """Kind of children that a controller makes, with the form and the number of the children."""

    kind: KindName  # kind of the children
    name: str  # pattern of a child's name; random letters follow a final hyphen
    prefix: str = ""  # pattern of a generateName that the child has in addition to its name
    parts: Path = ()  # path of the list or mapping of the parts; empty if the object is the only part
    roles: tuple[str, ...] = ()  # parts that count, by name in lower case; empty means all
    when: Mapping[Path, tuple[Any, ...]] = {}  # values that the paths must have; None means absent
    template: Path = ()  # path of the template (metadata and spec) in the part
    is_optional: bool = False  # the template may be absent, because `complete` adds it
    spec: Path | Mapping[str, Path] = ()  # without a template: path of the child's spec, or of its fields
    annotations_path: Path = ()  # path of the pods' annotations in the part, if the template has none
    role: str = ""  # role of the pod set; empty means the part's role, else the parent's
    later_path: Path = ()  # path of a field that is true if the children wait until others have ended
    count: Count = Count()  # number of children for each part
    first_path: Path = ()  # path of the first {index}; the default is 0
    owner: tuple[KindName, str] | None = None  # kind and name pattern of the owner; None means the object
    labels: Mapping[str, str] = {}  # patterns of the labels that the controller adds
    annotations: Mapping[str, str] = {}  # patterns of the annotations that the controller adds
    inherits: bool = False  # the children have the annotations of the object
    on_pods: bool = False  # labels and annotations also go into the child's pod template


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """Condition or field values by which an object shows a state."""

    condition: str = ""  # type of a status condition that must be True
    fields: Mapping[Path, tuple[str, ...]] = {}  # without a condition: values that the paths must have


class ApiKind(msgspec.Struct, frozen=True, kw_only=True):
    api_version: str
    kind: str
    irregular_plural: str = ""  # plural name in the API's paths; the default is the kind with an s

    @property
    def plural(self) -> str:
        return self.irregular_plural or f"{self.kind.lower()}s"

    @property
    def group(self) -> str:
        """Return the API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def qualified(self) -> str:
        """Return the kind in lower case with its API group, such as `job.batch`."""
        return f"{self.kind.lower()}.{self.group}"


class RuntimeKind(ApiKind, frozen=True, kw_only=True):
    """Kind of runtimes: objects that hold the templates for jobs of another kind."""

    namespaced: bool  # whether the runtime is in the job's namespace; else it is cluster-scoped


class RuntimeReference(msgspec.Struct, frozen=True, kw_only=True):
    """Paths, in a job, of the API group, kind and name of its runtime."""

    group: Path
    kind: Path
    name: Path
    kinds: tuple[RuntimeKind, ...]  # kinds of runtimes; the first is the default


class Commanded(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for a kind without a suspend field: its jobs wait by Muster's annotation.

    Commands stop and resume such jobs. The pods of a job name the PodGroup `OWNER-UID`.
    """

    is_waiting: Callable[[Json], bool]
    is_stopped: Callable[[Json], bool]  # whether a Command has stopped the job
    podgroup: Complete


class WorkloadRow(ApiKind, frozen=True, kw_only=True):
    """Row of the table: a kind whose controller makes pods.

    A `manageable` kind can wait suspended. Its controller makes nothing while `suspend` is true, deletes the
    job's objects when `suspend` becomes true, and creates them again when `suspend` becomes false.
    `annotate` returns the changes of the spec that give all pods an annotation with this name and text. The
    result is empty if the pods have the annotation already. The API allows these changes only while the
    object is suspended.
    """

    short_names: tuple[str, ...] = ()  # kubectl's short names
    offspring: tuple[Offspring, ...]  # kinds of children, in the order of their creation
    runtime: RuntimeReference | None = None  # source of the templates: `spec.runtime` for `complete`
    annotate: Annotate = lambda *_: {}  # only for kinds whose templates are in a runtime
    templates: tuple[Path, ...] = ()  # paths of pod templates that only `complete` uses
    counts: tuple[Path, ...] = ()  # paths of further numbers that must not be negative
    together: Callable[[Json], bool] = lambda _: False  # whether its pods must run together
    dependent_roles: Dependent = lambda *_: ()  # roles whose pods are created after other pods run
    at_once: Callable[[Json, Counts], int] | None = None  # pods created before any of them runs
    suspend: Path = ("spec", "suspend")  # path of the field that stops the controller
    commanded: Commanded | None = None  # replaces `suspend` for kinds that Muster may run itself
    manageable: bool = False  # whether its objects are jobs that can wait suspended
    parallelism: Path = ()  # path of its number of pods, if a partial start is possible
    completions: Path = ()  # path of the number of pods that must succeed
    success: tuple[Sign, ...] = ()  # signs of success; one of them is enough
    failure: tuple[Sign, ...] = ()
    complete: Complete = lambda obj: obj  # adds defaults of the kind's webhook and controller
    counting: Complete | None = None  # replaces `complete` for counts: omits ended children
    remark: Remark = lambda _: ""  # difference of the embedded cluster; empty without one

    @property
    def key(self) -> KindName:
        return self.api_version, self.kind

    @property
    def makes_groups(self) -> bool:
        """Return whether objects of the kind themselves determine how many of their pods start together."""
        return self.runtime is None and self.commanded is None and (self.manageable or self.together({}))

    @property
    def prefix(self) -> str:
        """Return the prefix that users write in front of the slash and the name."""
        return kind_prefix(*self.key)


Kinds = Mapping[KindName, WorkloadRow]


def kind_prefix(api_version: str, kind: str) -> str:
    """Return the name of a kind in front of a slash, as users write it: `vcjob` for Volcano's Job."""
    return "vcjob" if (api_version, kind) == VOLCANO_JOB else kind.lower()


def value_at(obj: Any, path: Path) -> Any:
    """Return the value at a path; None if it is absent."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def with_spec(obj: Json, **fields: Any) -> Json:
    """Return a copy of an object with these fields in its spec."""
    return {**obj, "spec": {**(obj.get("spec") or {}), **fields}}


def items_at(obj: Any, *path: str) -> list[Json]:
    """Return the mappings in the list at a path; empty if there is no list."""
    items = value_at(obj, path)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


class JobOutcome(Enum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


def is_suspended(row: WorkloadRow, obj: Json) -> bool:
    """Return whether a job is suspended: its controller must make no pods.

    Values other than true count as false, as in the API.
    """
    if row.commanded is not None:
        return row.commanded.is_stopped(obj) or row.commanded.is_waiting(obj)
    return bool(row.suspend) and value_at(obj, row.suspend) is True


def is_stopped(row: WorkloadRow, obj: Json) -> bool:
    """Return whether a user or the run time limit suspended a job. Only a user can resume such a job."""
    if row.commanded is not None:
        return row.commanded.is_stopped(obj)
    return is_suspended(row, obj) and bool(value_at(obj, ("metadata", "annotations", STARTED)))


def outcome_of(row: WorkloadRow, obj: Json) -> JobOutcome | None:
    """Return the outcome of a job; None while it is not finished."""
    conditions = items_at(obj, "status", "conditions")
    true_conditions = [condition.get("type") for condition in conditions if condition.get("status") == "True"]
    for signs, outcome in ((row.failure, JobOutcome.FAILED), (row.success, JobOutcome.SUCCEEDED)):
        for sign in signs:
            has_values = all(value_at(obj, path) in values for path, values in sign.fields.items())
            is_shown = sign.condition in true_conditions if sign.condition else has_values
            if is_shown:
                return outcome
    return None


_RUNTIME = "runtime"


class RuntimeName(NamedTuple):
    """Reference to a runtime, an object with templates. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str

    @property
    def display_name(self) -> str:
        """Return kind and name, such as `ClusterTrainingRuntime torch-distributed`."""
        return f"{self.kind} {self.name}"


def runtime_named_by(row: WorkloadRow, obj: Json) -> RuntimeName | None:
    """Return the runtime that an object refers to; None if the kind has its own templates.

    The name of an unknown kind includes its API group, so that no runtime is found for it.
    """
    reference = row.runtime
    if reference is None:
        return None
    kind = str(value_at(obj, reference.kind) or reference.kinds[0].kind)
    group = str(value_at(obj, reference.group) or reference.kinds[0].group)
    known = next((entry for entry in reference.kinds if (entry.kind, entry.group) == (kind, group)), None)
    namespace = value_at(obj, ("metadata", "namespace")) if known and known.namespaced else ""
    name = str(value_at(obj, reference.name) or "")
    return RuntimeName(kind if known else f"{kind}.{group}", str(namespace or ""), name)


def runtime_kind(row: WorkloadRow, name: RuntimeName) -> RuntimeKind | None:
    kinds = row.runtime.kinds if row.runtime else ()
    return next((kind for kind in kinds if kind.kind == name.kind), None)


def runtime_kinds(rows: Iterable[WorkloadRow]) -> list[RuntimeKind]:
    """Return all kinds of runtimes that jobs of these kinds may name."""
    kinds = (kind for row in rows if row.runtime for kind in row.runtime.kinds)
    return list({kind.kind: kind for kind in kinds}.values())


def with_runtime(obj: Json, spec: Json | None) -> Json:
    """Return a copy of a job with the spec of its runtime as `spec.runtime`.

    If `spec` is None, the runtime does not exist.
    """
    return with_spec(obj, **{_RUNTIME: spec})


def has_templates(row: WorkloadRow, obj: Json) -> bool:
    """Return whether an object has its templates itself, or `with_runtime` has been called for it."""
    return row.runtime is None or _RUNTIME in (obj.get("spec") or {})


def runtime_in(row: WorkloadRow, obj: Json) -> Json | None:
    """Return the runtime that `with_runtime` added; None if it added no runtime.

    Raises:
        ValueError: The runtime does not exist.
    """
    spec = obj.get("spec") or {}
    if _RUNTIME in spec and spec[_RUNTIME] is None:
        runtime_name = runtime_named_by(row, obj)
        raise ValueError(f"there is no {runtime_name.display_name if runtime_name else 'such runtime'}")
    runtime = spec.get(_RUNTIME)
    return dict(runtime) if runtime is not None else None
