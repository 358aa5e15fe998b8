"""The last words: what happened to each gang, how the queues stand, and what to try next."""

from collections.abc import Sequence

from extender.sim.show.drawing import Paper, cpu_in_use, queue_lines
from extender.sim.show.history import History, Story, ahead, listed, why
from extender.sim.show.picture import Gang, Picture


def last_words(picture: Picture, history: History, files: Sequence[str], paper: Paper) -> list[str]:
    lines = ["What happened"]
    for gang in picture.gangs:
        lines += paper.wrapped(f"{gang.part.name}: {_told(gang, picture, history)}", "  ")
    if picture.plain_pods:
        lines += paper.wrapped(f"{picture.plain_pods} pods of no gang ran beside them.", "  ")
    lines += ["", cpu_in_use(picture)]
    if not picture.done:
        lines += [line.text.rstrip() for line in queue_lines(picture, paper)]
    return [*lines, "", "Try next", *_next(picture, files)]


def _told(gang: Gang, picture: Picture, history: History) -> str:
    story = history.stories.get(gang.key)
    if gang.waits or story is None:
        return f"still waits, with none of its {gang.pods} pods placed. {why(gang)}{ahead(gang, picture)}"
    return f"{_course(gang, story)}."


def _course(gang: Gang, story: Story) -> str:
    if story.ran is None:
        return "is starting"
    waited = f"waited {story.ran - story.seen:.1f} s, then started whole" if story.waited else "started whole"
    if not gang.done:
        return f"{waited}, and {gang.running} of its {gang.pods} pods run"
    how = (
        f"{gang.failed} of its {gang.pods} pods failed" if gang.failed else f"all {gang.pods} pods succeeded"
    )
    return f"{waited}; {how}"


def _next(picture: Picture, files: Sequence[str]) -> list[str]:
    """What would show something new, in words that can be typed."""
    given = " ".join(f"-f {file}" for file in files)
    waiting = [gang.part.name for gang in picture.gangs if gang.waits]
    more = len(picture.report.nodes) + 2
    fewer = max(len(picture.report.nodes) - 1, 1)
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
