"""What a pod may ask of a real cluster and nobody plays here: refused, rather than taken and not heeded."""

from collections.abc import Iterator

from extender.api.workloads.children import MALFORMED, count_pods
from extender.sim.apiserver.kinds import Json

HARD = "DoNotSchedule"
MOST_PODS = 10_000  # that are made of one workload, or of all workloads of a user's files


def too_many_pods(workload: Json) -> str:
    """Empty where they are not, or cannot be counted."""
    try:
        pods = count_pods(workload)
    except MALFORMED:
        return ""
    return f"the embedded cluster makes at most {MOST_PODS} pods, not {pods}" if pods > MOST_PODS else ""


def unsupported(spec: Json) -> Iterator[tuple[str, str]]:
    """Fields of a pod's spec, and what of them the embedded cluster has not."""
    constraints = spec.get("topologySpreadConstraints") or []
    if any(each.get("whenUnsatisfiable", HARD) == HARD for each in constraints):
        yield "topologySpreadConstraints", f"{HARD}; ScheduleAnyway is allowed"
    for volume in spec.get("volumes") or []:
        for kind in ("persistentVolumeClaim", "ephemeral"):
            if kind in volume:
                yield "volumes", f"{kind}, as it has no storage"
    if spec.get("resourceClaims"):
        yield "resourceClaims", "anything in them, as it has no devices"
