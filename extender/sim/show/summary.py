"""The summary at the end: what happened to gangs and other pods, how the queues stand, what to try next."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from extender.api.keys import GPU
from extender.api.texts import listed
from extender.domain.model.reasons import Reason
from extender.sim.apiserver.kinds import Json
from extender.sim.files.unasked import Unasked
from extender.sim.show import sentences
from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.gangs import Gang
from extender.sim.show.tables import Canvas, cpu_in_use, queue_lines
from extender.terminal.text import many

_MOST_NAMES = 10  # of pods in one sentence
_MORE_NODES_HELP = frozenset({Reason.NO_ROOM, Reason.FRAGMENTED})


class Rerun(NamedTuple):
    """How this run was started."""

    program: str
    files: Sequence[str]
    own_nodes: bool  # the files hold Nodes, so that none are made up
    repeatable: bool = True  # the files can be read once more, as those can that are no pipes

    @property
    def command(self) -> str:
        return " ".join([f"{self.program} run", *(f"-f {file}" for file in self.files)])


def closing_summary(
    cluster: ClusterState,
    log: sentences.TransitionLog,
    rerun: Rerun,
    canvas: Canvas,
    unasked: Sequence[Unasked] = (),
    refused: Sequence[tuple[Json, str]] = (),
) -> list[str]:
    lines = ["What happened"]
    # Titles of gangs by what became of them, so that a reason of many is told once.
    found: dict[str, list[str]] = {}
    for gang in cluster.gangs:
        found.setdefault(_outcome(gang, cluster, log), []).append(gang.title)
    for outcome, titles in found.items():
        subject = titles[0] if len(titles) == 1 else f"Each of {', '.join(titles)}"
        lines += canvas.wrapped(f"{subject}: {outcome}", "  ")
    for pods in sentences.alike(cluster.loose):
        did = f"{sentences.pods_sentence(pods)}."
        if pods[0].state == "waits":
            did = f"never started. {sentences.why_pods_wait(pods)}"
        lines += canvas.wrapped(f"{listed([pod.key for pod in pods], _MOST_NAMES)}: {did}", "  ")
    for job in unasked:
        lines += canvas.wrapped(f"{job.title}: {job.sentence}.", "  ")
    for _, text in refused:
        lines += canvas.wrapped(f"{text}.", "  ")
    if not cluster.gangs and not cluster.loose and not unasked and not refused:
        lines.append("  There are no gangs and no pods.")
    lines += ["", cpu_in_use(cluster)]
    if cluster.report.queues and not cluster.everything_ended:
        lines += [line.plain.rstrip() for line in queue_lines(cluster, canvas)]
    # What would show something new, as commands, which are never folded.
    same = [*_other_nodes(cluster, rerun), (f"{rerun.command} -o json", "the outcome for programs")]
    suggestions = same if rerun.repeatable else []
    suggestions.append((f"{rerun.program} run -f YOUR.yaml", "your own pods, PodGroups and queues"))
    lines += ["", "Try next"]
    for command, what in suggestions:
        lines += [f"  {command}", *canvas.wrapped(what, "      ")]
    return lines


def _outcome(gang: Gang, cluster: ClusterState, log: sentences.TransitionLog) -> str:
    times = log.times.get(gang.key)
    if gang.has_started and times is not None:
        if times.ran is None:
            did = "has started"
        else:
            how = "started one by one" if gang.starts_apart else "started whole"
            did = f"waited {times.wait(times.ran):.1f} s, then {how}" if times.waited else how
            runs = "runs" if gang.pods == 1 else "run"
            pods = f"{gang.running} of {many(gang.pods, 'pod')} {runs}"
            did += f"; {sentences.ending(gang)}" if gang.state == "ended" else f", and {pods}"
        return f"{did}{sentences.left_out(gang) or '.'}"
    if gang.state == "starts":
        return f"is starting with {many(gang.size, 'pod')}."
    if not gang.size:
        did = ", and has no pods"
    elif not gang.pods:
        did = f"; its {many(gang.size, 'pod')} were not made"
    else:
        did = f"; {gang.summary.bound} of {many(gang.pods, 'pod')} placed"
    return f"never started{did}. {sentences.waiting_for(gang)}{sentences.ahead(gang, cluster)}"


def _other_nodes(cluster: ClusterState, rerun: Rerun) -> Iterable[tuple[str, str]]:
    if rerun.own_nodes:
        return
    nodes = len(cluster.report.nodes)
    short = [gang.title for gang in cluster.gangs if gang.waits and gang.summary.reason in _MORE_NODES_HELP]
    if short:
        yield f"{rerun.command} --nodes {nodes + 2}", f"room for {listed(short, 3)}?"
    never = [gang.detail for gang in cluster.gangs if gang.summary.reason == Reason.NEVER_FITS]
    never += [pod.why.detail for pod in cluster.loose if pod.why.reason == Reason.NEVER_FITS]
    offered = any(GPU in node.allocatable for node in cluster.report.nodes)
    if not offered and any(GPU in detail for detail in never):
        yield f"{rerun.command} --node-gpu 8", f"nodes with {GPU}"
    elif cluster.everything_started and nodes > 1:
        yield f"{rerun.command} --nodes {nodes - 1}", "the same with less room"
