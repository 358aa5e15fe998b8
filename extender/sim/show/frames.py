"""Frames of the live view, and their output: on a terminal, as lines for a pipe, or not at all.

A frame fits the canvas. If there is no space for all gangs, each gang has one line, pending gangs come first,
and the rest is counted. A run ends with a summary.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from extender.api.keys import GPU
from extender.api.units import and_more, listed
from extender.apimachinery.kinds import Json
from extender.domain.model.reasons import CAPACITY_REASONS, Reason, Verdict
from extender.files.unmanaged_objects import UnmanagedObject
from extender.sim.show import sentences, tables
from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.gangs import Gang, SinglePod
from extender.sim.show.sentences import ShownTransition, TransitionLog
from extender.sim.show.tables import Canvas
from extender.terminal.text import counted

_MAX_TRANSITIONS = 6  # maximum of shown transitions
_MAX_SINGLE_PODS = 3  # maximum of lines for pods without a gang
# Verbs for several gangs, by state. The most interesting state comes first.
_VERBS = {
    Verdict.STARTING: "start",
    Verdict.WAITING: "wait",
    Verdict.UNKNOWN: "are pending",
    Verdict.RUNNING: "run",
    Verdict.ENDED: "have ended",
}


class Picture(NamedTuple):
    cluster: ClusterState
    log: TransitionLog  # all transitions so far
    second: float  # seconds since the start
    has_settled: bool = False  # whether the cluster has settled


def frame(picture: Picture, head: Sequence[str], canvas: Canvas) -> list[Text]:
    """Return the lines of a frame. They fit the canvas."""
    lines = [clock_line(picture.second, picture.has_settled), *drawn_head(head, canvas)]
    lines += [Text(tables.cpu_in_use(picture.cluster)), Text()]
    lines += [*tables.queue_lines(picture.cluster, canvas, canvas.height // 3), Text()]
    pod_lines = _single_pod_lines(picture.cluster.single_pods, canvas)
    lines += _gang_lines(picture, canvas, canvas.height - len(lines) - len(pod_lines) - 1)
    lines += pod_lines
    space, transitions = canvas.height - len(lines) - 2, picture.log.transitions
    if space > 0 and transitions:
        latest = transitions[-min(space, _MAX_TRANSITIONS) :]
        lines += [Text(), *(Text(f"{_when(change)}{change.subject} {change.brief}") for change in latest)]
    lines = lines[: canvas.height - 1]
    for line in lines:
        if line.cell_len > canvas.width:
            line.truncate(canvas.width, overflow="ellipsis" if canvas.unicode else "crop")
    return lines


def clock_line(second: float, has_settled: bool = False) -> Text:
    clock = f"Muster at work for {int(second) // 60}:{int(second) % 60:02}"
    return Text(f"{clock}. Nothing changes any more by itself." if has_settled else clock, "bold")


def drawn_head(head: Sequence[str], canvas: Canvas) -> list[Text]:
    """Return the lines of the head. Long lines are folded, because a path that is cut would be useless."""
    width, lines = canvas.width, head_lines(head, canvas)
    return [Text(line[at : at + width], "dim") for line in lines for at in range(0, len(line), width)]


def head_lines(head: Sequence[str], canvas: Canvas) -> list[str]:
    """Return a sentence, and commands for the user to copy, which are never folded.

    The first command and all addresses have a line of their own. The other commands share a line if they fit.
    """
    sentence, *commands = head
    separate = [line for line in commands if line == commands[0] or "://" in line]
    rest = [line for line in commands if line not in separate]
    joined = ";  ".join(rest)
    return [*canvas.wrap(sentence), *separate, *([joined] if 0 < len(joined) <= canvas.width else rest)]


def _gang_lines(picture: Picture, canvas: Canvas, max_lines: int) -> list[Text]:
    """Return the gangs with their whole reasons if there is space, else one line for each gang.

    Only the shown rows are computed, because there may be thousands of gangs.
    """
    gangs = picture.cluster.gangs
    if not gangs:
        return []
    if len(gangs) < max_lines:
        rows = tables.rows_of(gangs, picture.cluster, picture.log, picture.second, canvas)
        table = tables.gang_table(rows, canvas)
        return table if len(table) <= max_lines else tables.brief_table(rows, canvas)
    gangs = sorted(gangs, key=lambda gang: tuple(_VERBS).index(gang.state))
    shown_count = max(max_lines - 2, 0)  # one line for the heading, one for the others
    rows = tables.rows_of(gangs[:shown_count], picture.cluster, picture.log, picture.second, canvas)
    states = Counter(gang.state for gang in gangs[shown_count:])
    parts = [f"{number} {_VERBS[state]}" for state, number in states.items()]
    if len(states) == 1:  # `and 37 more wait`, or `and 37 more: 30 wait, 7 run`
        others = f"and {states.total()} more {_VERBS[next(iter(states))]}"
    else:
        others = f"and {states.total()} more: {', '.join(parts)}"
    return [*tables.brief_table(rows, canvas), Text(others, "dim")]


def _single_pod_lines(pods: Sequence[SinglePod], canvas: Canvas) -> list[Text]:
    """Return lines for the waiting pods with their reasons, and one line for all other pods."""
    waiting = sentences.group_similar([pod for pod in pods if pod.state is Verdict.WAITING])
    texts = [f"{listed([pod.key for pod in same], 3)} {sentences.pods_sentence(same)}" for same in waiting]
    lines = [Text(line, "yellow") for text in texts[:_MAX_SINGLE_PODS] for line in canvas.wrap(text)]
    rest = and_more(len(texts) - _MAX_SINGLE_PODS, " kinds of pods of no gang wait")
    lines += (Text(text, "dim") for text in rest)
    verbs = Counter(_verb(pod) for pod in pods if pod.state is not Verdict.WAITING)
    if verbs:
        parts = ", ".join(f"{count} {verb}" for verb, count in verbs.items())
        lines.append(Text(f"Pods of no gang: {parts}", "dim"))
    return [Text(), *lines] if lines else []


def _verb(pod: SinglePod) -> str:
    if pod.state is Verdict.ENDED:
        return "failed" if pod.failed else "succeeded"
    return _VERBS[pod.state]


def transition_lines(transition: ShownTransition, canvas: Canvas) -> list[str]:
    """Return the lines of a transition for a log."""
    when = _when(transition)
    first, *rest = canvas.wrap(f"{transition.subject} {transition.text}", " " * len(when))
    return [when + first.lstrip(), *rest]


def _when(transition: ShownTransition) -> str:
    return f"{transition.second:6.1f} s  "


# ---- views


class View:
    """View that shows nothing, for `-o json`. It is the base of the other views."""

    def begin(self, head: Sequence[str]) -> None:
        pass

    def show(self, picture: Picture, new: Sequence[ShownTransition]) -> None:
        pass

    def end(self, lines: Sequence[str]) -> None:
        pass


class LogView(View):
    """View that writes a line for each transition."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._canvas = tables.canvas_of(stream)

    def begin(self, head: Sequence[str]) -> None:
        self._write(head_lines(head, self._canvas))

    def show(self, picture: Picture, new: Sequence[ShownTransition]) -> None:
        for transition in new:
            self._write(transition_lines(transition, self._canvas))

    def end(self, lines: Sequence[str]) -> None:
        self._write(["", *lines])

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._stream.write(line.rstrip() + "\n")
        self._stream.flush()


class LiveView(View):
    """View that keeps one frame on a terminal. Only changed lines are written again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._head: Sequence[str] = ()
        self._canvas = tables.canvas_of(stream)
        self._shown_lines: list[Text] = []
        console = Console(file=stream, force_terminal=True, highlight=False, markup=False)
        self._console = console
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def begin(self, head: Sequence[str]) -> None:
        self._head = head
        self._live.start()
        self._draw([clock_line(0.0), *drawn_head(head, self._canvas), Text("Starting ...")])

    def show(self, picture: Picture, new: Sequence[ShownTransition]) -> None:
        # After a resize, the old lines are in other places, so the screen is cleared.
        if (canvas := tables.canvas_of(self._stream)) != self._canvas:
            self._canvas, self._shown_lines = canvas, []
            self._console.clear()
        self._draw(frame(picture, self._head, self._canvas))

    def end(self, lines: Sequence[str]) -> None:
        """End the view. The last frame stays, `lines` follow, and the cursor is shown again."""
        self._live.stop()
        self._stream.write("\n".join(["", *lines, ""]))
        self._stream.flush()

    def _draw(self, lines: list[Text]) -> None:
        if lines != self._shown_lines:
            self._shown_lines = lines
            self._live.update(Group(*lines), refresh=True)


def is_live(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal on which frames can be drawn."""
    console = Console(file=stream)
    return console.is_terminal and not console.is_dumb_terminal


def view_for(stream: TextIO) -> View:
    return LiveView(stream) if is_live(stream) else LogView(stream)


# ---- the summary at the end: what happened to gangs and other pods, how the queues stand, what to try next

_MAX_NAMES = 10  # names of pods in one sentence
_MORE_NODES_HELP = frozenset(CAPACITY_REASONS)


class Rerun(NamedTuple):
    """Command line that repeats the run."""

    program: str
    files: Sequence[str]
    has_own_nodes: bool  # whether the files have Nodes; else the command makes nodes
    is_repeatable: bool = True  # whether the files can be read again, which pipes cannot
    flags: Sequence[str] = ()  # flags that determine the nodes

    @property
    def command(self) -> str:
        return " ".join([f"{self.program} run", *(f"-f {file}" for file in self.files), *self.flags])


def closing_summary(
    cluster: ClusterState,
    log: TransitionLog,
    rerun: Rerun,
    canvas: Canvas,
    unmanaged_objects: Sequence[UnmanagedObject] = (),
    refused: Sequence[tuple[Json, str]] = (),
) -> list[str]:
    lines = ["What happened"]
    # Titles of gangs by outcome, so that a common outcome is shown once.
    titles_by_outcome: dict[str, list[str]] = {}
    for gang in cluster.gangs:
        titles_by_outcome.setdefault(_outcome(gang, cluster, log), []).append(gang.title)
    for outcome, titles in titles_by_outcome.items():
        subject = titles[0] if len(titles) == 1 else f"Each of {', '.join(titles)}"
        lines += canvas.wrap(f"{subject}: {outcome}", "  ")
    for pods in sentences.group_similar(cluster.single_pods):
        statement = f"{sentences.pods_sentence(pods)}."
        if pods[0].state is Verdict.WAITING:
            statement = f"never started. {sentences.why_pods_wait(pods)}"
        lines += canvas.wrap(f"{listed([pod.key for pod in pods], _MAX_NAMES)}: {statement}", "  ")
    for job in unmanaged_objects:
        lines += canvas.wrap(f"{job.title}: {job.sentence}.", "  ")
    for _, text in refused:
        lines += canvas.wrap(f"{text}.", "  ")
    if not cluster.gangs and not cluster.single_pods and not unmanaged_objects and not refused:
        lines.append("  There are no gangs and no pods.")
    lines += ["", tables.cpu_in_use(cluster)]
    if cluster.report.queues and not cluster.everything_ended:
        lines += [line.plain.rstrip() for line in tables.queue_lines(cluster, canvas)]
    # Commands for the next run. They are never folded.
    reruns = [*_node_suggestions(cluster, rerun), (f"{rerun.command} -o json", "the outcome for programs")]
    suggestions = reruns if rerun.is_repeatable else []
    suggestions.append((f"{rerun.program} run -f YOUR.yaml", "your own pods, PodGroups and queues"))
    lines += ["", "Try next"]
    for command, explanation in suggestions:
        lines += [f"  {command}", *canvas.wrap(explanation, "      ")]
    return lines


def _outcome(gang: Gang, cluster: ClusterState, log: TransitionLog) -> str:
    times = log.times.get(gang.key)
    if gang.has_started and times is not None:
        if times.ran_at is None:
            text = "has started"
        else:
            manner = "started one by one" if gang.starts_one_by_one else "started whole"
            text = f"waited {times.wait(times.ran_at):.1f} s, then {manner}" if times.has_waited else manner
            runs = "runs" if len(gang.pods) == 1 else "run"
            pods = f"{gang.running_count} of {counted(len(gang.pods), 'pod')} {runs}"
            text += f"; {sentences.ending_text(gang)}" if gang.state is Verdict.ENDED else f", and {pods}"
        return f"{text}{sentences.left_out_text(gang) or '.'}"
    if gang.state is Verdict.STARTING:
        return f"is starting with {counted(gang.size, 'pod')}."
    if not gang.size:
        text = ", and has no pods"
    elif not gang.pods:
        text = f"; its {counted(gang.size, 'pod')} were not made"
    else:
        text = f"; {gang.bound_count} of {counted(len(gang.pods), 'pod')} placed"
    return f"never started{text}. {sentences.wait_text(gang)}{sentences.ahead_text(gang, cluster)}"


def _node_suggestions(cluster: ClusterState, rerun: Rerun) -> Iterable[tuple[str, str]]:
    """Yield commands that repeat the run with other nodes, each with its purpose."""
    if rerun.has_own_nodes:
        return
    node_count = len(cluster.report.nodes)
    lacking = [gang.title for gang in cluster.gangs if gang.waits and gang.group.reason in _MORE_NODES_HELP]
    if lacking:
        yield f"{rerun.command} --nodes {node_count + 2}", f"capacity for {listed(lacking, 3)}?"
    never_fitting = [gang.group.message for gang in cluster.gangs if gang.group.reason == Reason.NEVER_FITS]
    waits = (pod.wait_reason for pod in cluster.single_pods)
    never_fitting += [wait.detail for wait in waits if wait.reason == Reason.NEVER_FITS]
    has_gpu = any(GPU in node.allocatable for node in cluster.report.nodes)
    if not has_gpu and any(GPU in detail for detail in never_fitting):
        yield f"{rerun.command} --node-gpu 8", f"nodes with {GPU}"
    elif cluster.everything_started and node_count > 1:
        yield f"{rerun.command} --nodes {node_count - 1}", "the same with less capacity"
