"""What may not change of a Job: most of its pod template, unless it is suspended and has no active pods."""

from copy import deepcopy

from extender.sim.apiserver.conditions import find_stored_condition
from extender.sim.apiserver.field_errors import FieldErrors, wrong
from extender.sim.apiserver.kinds import Json

_FIXED = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_FREE = ("nodeSelector", "tolerations", "schedulingGates")  # of the template of a Job that is at rest
_IMMUTABLE = "field is immutable"


def job_change_errors(before: Json, job: Json) -> FieldErrors:
    old, new = before.get("spec") or {}, job.get("spec") or {}
    yield from _completions(old, new)
    for name in _FIXED:
        if old.get(name) != new.get(name):
            yield wrong(f"spec.{name}", new.get(name), _IMMUTABLE)
    kept, wanted = old.get("template") or {}, new.get("template") or {}
    if _is_at_rest(before):
        kept, wanted = _without_free_parts(kept), _without_free_parts(wanted)
    if kept != wanted:
        yield wrong("spec.template", new.get("template"), _IMMUTABLE)


def _completions(old: Json, new: Json) -> FieldErrors:
    """Those of an indexed Job may change together with its parallelism."""
    given = new.get("completions")
    if given == old.get("completions"):
        return
    if new.get("completionMode") != "Indexed":
        yield wrong("spec.completions", given, _IMMUTABLE)
    elif given is not None and given != new.get("parallelism"):
        yield wrong("spec.completions", given, "can only be modified in tandem with spec.parallelism")


def _is_at_rest(job: Json) -> bool:
    """Whether it is suspended, its controller knows that or has never started it, and no pod is left."""
    status = job.get("status") or {}
    reported = find_stored_condition(job, "Suspended").get("status") == "True"
    suspended = bool((job.get("spec") or {}).get("suspend"))
    return suspended and (reported or "startTime" not in status) and not status.get("active")


def _without_free_parts(template: Json) -> Json:
    """Where its pods may go, what they ask for and what is written on them are free then."""
    spec = {key: value for key, value in deepcopy(template.get("spec") or {}).items() if key not in _FREE}
    affinity = {key: value for key, value in (spec.pop("affinity", None) or {}).items() if value}
    affinity.pop("nodeAffinity", None)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        container.pop("resources", None)
    return {**spec, **({"affinity": affinity} if affinity else {})}
