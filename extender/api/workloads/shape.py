"""Shape of the table of job kinds: paths of their fields, and objects with the templates of other jobs."""

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

MOST = 2**31 - 1  # of one count: the API's counts have 32 bits
POD, JOB = ("v1", "Pod"), ("batch/v1", "Job")
VOLCANO_JOB = ("batch.volcano.sh/v1alpha1", "Job")
REPLICA_SET, STATEFUL_SET = ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")
TEMPLATE = ("spec", "template")


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Number of children of one part: the number at `path`, or `default`.

    It is at least `at_least`, at most `at_most`, and multiplied by each of `times`.
    """

    path: Path = ()
    default: int = 1
    at_least: Path = ()
    at_most: Path = ()
    times: Path = ()

    def read_from(self, part: Json) -> int:
        """Return the count of a part; a negative one counts as 0.

        Raises:
            ValueError: It is no 32-bit number.
        """
        number = self._at(part, self.path, self.default)
        number = max(number, self._at(part, self.at_least, number))
        number = min(number, self._at(part, self.at_most, number))
        return max(number * self._at(part, self.times, 1), 0)

    @staticmethod
    def _at(part: Json, path: Path, default: int) -> int:
        number = value_at(part, path) if path else None
        if number is None:
            return default
        if type(number) is not int or abs(number) > MOST:
            field = ".".join(path)
            raise ValueError(f"{field}: invalid value {number!r:.50}: must be a whole number up to {MOST}")
        return number


class Offspring(msgspec.Struct, frozen=True, kw_only=True):
    """Kind of objects that a controller makes."""

    kind: KindName  # the kind of the objects
    name: str  # the pattern of its name; one that ends in a hyphen gets random letters
    prefix: str = ""  # the pattern of a generateName that precedes the generated part, next to a full name
    parts: Path = ()  # list or mapping whose items are the parts; empty: the object is the only part
    roles: tuple[str, ...] = ()  # the keys of that mapping that count, in lower case; empty: all
    when: Mapping[Path, tuple[Any, ...]] = {}  # made only if each path has one of its values; None: absent
    template: Path = ()  # path of the template in the part: metadata and spec
    optional: bool = False  # the template may be absent; `complete` adds it
    spec: Path | Mapping[str, Path] = ()  # without template: path of its spec, or paths by field of it
    annotated: Path = ()  # path of the pods' annotations in the part, if they are not in the template
    role: str = ""  # role of these pods as a set; empty: that of the part, or of the parent object
    later: Path = ()  # path of the field by which the part is created only after others have ended
    count: Count = Count()  # number of children for each part
    first: Path = ()  # path of the number at which {index} begins; 0 if absent
    owner: tuple[KindName, str] | None = None  # kind of the owner, pattern of its name; None: the object
    labels: Mapping[str, str] = {}  # patterns of the labels that the controller adds
    annotations: Mapping[str, str] = {}  # patterns of the annotations that the controller adds
    inherits: bool = False  # it has the annotations of the object
    on_pods: bool = False  # labels and annotations are added to the pod template of the child, too


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """Sign of a state in an object."""

    condition: str = ""  # the type of a condition in its status that is True
    fields: Mapping[Path, tuple[str, ...]] = {}  # instead: each path has one of its values


class ApiKind(msgspec.Struct, frozen=True, kw_only=True):
    api_version: str
    kind: str
    named: str = ""  # plural name in the API's paths, if it is not the kind with an s

    @property
    def plural(self) -> str:
        return self.named or f"{self.kind.lower()}s"

    @property
    def group(self) -> str:
        """Return the API group; empty for the core of Kubernetes."""
        return self.api_version.rpartition("/")[0]

    @property
    def qualified(self) -> str:
        """Return the resource with its group, such as `job.batch`."""
        return f"{self.kind.lower()}.{self.group}"


class RuntimeKind(ApiKind, frozen=True, kw_only=True):
    """Kind of objects with the templates of jobs of another kind."""

    namespaced: bool  # a job finds them in its own namespace


class RuntimeReference(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of group, kind and name of the object with the templates."""

    group: Path
    kind: Path
    name: Path
    kinds: tuple[RuntimeKind, ...]  # kinds that may be named; the first without group or kind


class Commanded(msgspec.Struct, frozen=True, kw_only=True):
    """Kind without a suspend field: its objects wait by Muster's annotation; Commands stop and resume them.

    Its pods name the PodGroup `OWNER-UID`, of which `podgroup` is the spec; it raises MALFORMED.
    """

    waits: Callable[[Json], bool]
    stopped: Callable[[Json], bool]  # whether it makes nothing until a Command resumes it
    podgroup: Complete


class WorkloadRow(ApiKind, frozen=True, kw_only=True):
    """Kind whose controller makes pods.

    A `manageable` one can wait suspended: its controller makes nothing while `suspend` is true, removes its
    objects when that becomes true, and begins again when it becomes false. `annotate` returns the fields of
    the spec that give all pods an annotation of this name and text, none if they have it already; these may
    change only while the object is suspended.
    """

    short: tuple[str, ...] = ()  # kubectl's short names
    offspring: tuple[Offspring, ...]  # children, in the order of their creation
    runtime: RuntimeReference | None = None  # its templates; `complete` finds it as `spec.runtime`
    annotate: Annotate = lambda *_: {}  # where another object has the templates
    templates: tuple[Path, ...] = ()  # further pod templates, from which `complete` makes others
    counts: tuple[Path, ...] = ()  # paths of further numbers, 0 or more
    together: Callable[[Json], bool] = lambda _: False  # whether a part of its pods is of no use
    dependent: Dependent = lambda *_: ()  # roles whose pods are made once others run
    at_once: Callable[[Json, Counts], int] | None = None  # made before any runs; None: all but `dependent`
    suspend: Path = ("spec", "suspend")  # the field that keeps the controller from making anything
    commanded: Commanded | None = None  # instead of `suspend`, for a kind that Muster may run itself
    manageable: bool = False  # it is a job that can wait suspended
    parallelism: Path = ()  # path of the number of its pods, if fewer of them may be started
    completions: Path = ()  # path of the number of pods that have to succeed
    succeeded: tuple[Sign, ...] = ()  # signs of success: one is enough, and then it makes no more pods
    failed: tuple[Sign, ...] = ()
    complete: Complete = lambda obj: obj  # adds the defaults of the kind's admission for the paths
    counted: Complete | None = None  # `complete` to count pods: without children that have ended
    remark: Remark = lambda _: ""  # difference from a real cluster; empty: none

    @property
    def key(self) -> KindName:
        return self.api_version, self.kind

    @property
    def makes_groups(self) -> bool:
        """Return whether objects of the kind declare how many of their pods start together."""
        return self.runtime is None and self.commanded is None and (self.manageable or self.together({}))

    @property
    def prefix(self) -> str:
        """Return the prefix that users write before a slash."""
        return kind_prefix(*self.key)


Kinds = Mapping[KindName, WorkloadRow]


def kind_prefix(api_version: str, kind: str) -> str:
    """Return the name of a kind before a slash, as users write it: `vcjob` for Volcano's Job."""
    return "vcjob" if (api_version, kind) == VOLCANO_JOB else kind.lower()


def value_at(obj: Any, path: Path) -> Any:
    """Return the value at a path; None if it is absent."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def with_spec(obj: Json, **fields: Any) -> Json:
    """Return a copy with these fields in its spec."""
    return {**obj, "spec": {**(obj.get("spec") or {}), **fields}}


def items_at(obj: Any, *path: str) -> list[Json]:
    """Return the mappings in the list at a path; empty if there is no list."""
    items = value_at(obj, path)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


class JobOutcome(Enum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


def is_suspended(row: WorkloadRow, obj: Json) -> bool:
    """Return whether the controller of a job must make no pods.

    Values other than true count as false, as in the API.
    """
    if row.commanded is not None:
        return row.commanded.stopped(obj) or row.commanded.waits(obj)
    return bool(row.suspend) and value_at(obj, row.suspend) is True


def is_stopped(row: WorkloadRow, obj: Json) -> bool:
    """Return whether a job is suspended until a user resumes it: by a user, or by its run time limit."""
    if row.commanded is not None:
        return row.commanded.stopped(obj)
    return is_suspended(row, obj) and bool(value_at(obj, ("metadata", "annotations", STARTED)))


def outcome_of(row: WorkloadRow, obj: Json) -> JobOutcome | None:
    """Return the outcome of a job; None while it is not finished."""
    conditions = items_at(obj, "status", "conditions")
    true_conditions = [condition.get("type") for condition in conditions if condition.get("status") == "True"]
    for signs, outcome in ((row.failed, JobOutcome.FAILED), (row.succeeded, JobOutcome.SUCCEEDED)):
        for sign in signs:
            in_fields = all(value_at(obj, path) in values for path, values in sign.fields.items())
            is_shown = sign.condition in true_conditions if sign.condition else in_fields
            if is_shown:
                return outcome
    return None


_RUNTIME = "runtime"


class RuntimeName(NamedTuple):
    """Name of an object with the templates of jobs. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str

    @property
    def display_name(self) -> str:
        """Return kind and name, such as `ClusterTrainingRuntime torch-distributed`."""
        return f"{self.kind} {self.name}"


def runtime_named_by(row: WorkloadRow, obj: Json) -> RuntimeName | None:
    """Return the runtime that an object names; None for a kind with its own templates.

    A runtime of an unknown kind is not found anywhere.
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
    """Return a copy that has the spec of its runtime as `spec.runtime`; None: the runtime does not exist."""
    return with_spec(obj, **{_RUNTIME: spec})


def has_templates(row: WorkloadRow, obj: Json) -> bool:
    """Return whether an object has its templates, or its runtime was looked for."""
    return row.runtime is None or _RUNTIME in (obj.get("spec") or {})


def runtime_in(row: WorkloadRow, obj: Json) -> Json | None:
    """Return the runtime that `with_runtime` added, if any.

    Raises:
        ValueError: The runtime does not exist.
    """
    spec = obj.get("spec") or {}
    if _RUNTIME in spec and spec[_RUNTIME] is None:
        runtime_name = runtime_named_by(row, obj)
        raise ValueError(f"there is no {runtime_name.display_name if runtime_name else 'such runtime'}")
    runtime = spec.get(_RUNTIME)
    return dict(runtime) if runtime is not None else None
