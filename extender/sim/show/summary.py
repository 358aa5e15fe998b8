"""The summary at the end: what happened to each gang, how the queues stand, and what to try next."""

from collections.abc import Sequence

from extender.sim.show.cluster_state import ClusterState, Gang
from extender.sim.show.frames import Canvas, cpu_in_use, queue_lines
from extender.sim.show.transitions import GangTimes, TransitionLog, ahead, listed, waiting_for


def closing_summary(
    cluster: ClusterState, log: TransitionLog, files: Sequence[str], canvas: Canvas
) -> list[str]:
    lines = ["What happened"]
    for gang in cluster.gangs:
        lines += canvas.wrapped(f"{gang.summary.name}: {_outcome(gang, cluster, log)}", "  ")
    if cluster.plain_pods:
        lines += canvas.wrapped(f"{cluster.plain_pods} other pods, of no gang, ran as well.", "  ")
    lines += ["", cpu_in_use(cluster)]
    if not cluster.done:
        lines += [line.plain.rstrip() for line in queue_lines(cluster, canvas)]
    return [*lines, "", "Try next", *_next(cluster, files)]


def _outcome(gang: Gang, cluster: ClusterState, log: TransitionLog) -> str:
    times = log.times.get(gang.key)
    if gang.waits or times is None:
        reason = f"{waiting_for(gang)}{ahead(gang, cluster)}"
        return f"still waits, with none of its {gang.pods} pods placed. {reason}"
    return f"{_progress(gang, times)}."


def _progress(gang: Gang, times: GangTimes) -> str:
    if times.ran is None:
        return "is starting"
    waited = f"waited {times.ran - times.seen:.1f} s, then started whole" if times.waited else "started whole"
    if not gang.done:
        return f"{waited}, and {gang.running} of its {gang.pods} pods run"
    how = (
        f"{gang.failed} of its {gang.pods} pods failed" if gang.failed else f"all {gang.pods} pods succeeded"
    )
    return f"{waited}; {how}"


def _next(cluster: ClusterState, files: Sequence[str]) -> list[str]:
    """What would show something new, as commands."""
    given = " ".join(f"-f {file}" for file in files)
    waiting = [gang.summary.name for gang in cluster.gangs if gang.waits]
    more = len(cluster.report.nodes) + 2
    fewer = max(len(cluster.report.nodes) - 1, 1)
    nodes = (
        (f"muster run {given} --nodes {more}", f"room for {listed(waiting, 3)}?")
        if waiting
        else (f"muster run {given} --nodes {fewer}", "the same gangs with less room")
    )
    suggestions = [
        nodes,
        (f"muster run {given} --until-settled -o json", "the outcome for programs"),
        ("muster run -f YOUR.yaml", "your own pods, PodGroups and queues"),
    ]
    return [line for command, what in suggestions for line in (f"  {command}", f"      {what}")]
