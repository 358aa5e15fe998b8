"""Waiting until a queue is as it was asked to be, and telling meanwhile what is left in it.

Progress goes to stderr: what a command did is all that it prints on stdout.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from extender.cli.access import ClusterAccess
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.pod_state import ours
from extender.cli.lookup import fetch
from extender.cli.observed import ObservedGroup, ObservedQueue
from extender.cli.queues.timeout import Timeout
from extender.domain.model.ownership import group_name
from extender.kube.resources import QUEUES
from extender.terminal.progress import working

T = TypeVar("T")

PACE = 0.5  # seconds between two looks
_SILENCE = 15.0  # seconds without any state after which Muster is probably not there to write one
_NAMED = 6
_ALONE = "pods that have no PodGroup are left to their owners"

clock: Callable[[], float] = time.monotonic
pause: Callable[[float], Any] = time.sleep


def until(look: Callable[[], T | None], timeout: Timeout, left: Callable[[], str]) -> T:
    """What `look` finds. When the timeout ends, so does the command, with what is `left`."""
    deadline = clock() + timeout.seconds
    with working("waiting"):
        while (found := look()) is None:
            if timeout.seconds and clock() >= deadline:
                raise click.ClickException(f"--timeout: {timeout.written} are over: {left()}")
            pause(PACE)
    return found


class WatchedQueue:
    """One queue, looked at again and again; each change of what is left in it is a line."""

    def __init__(self, place: ClusterAccess, name: str) -> None:
        self._place = place
        self._name = name
        self._reported = ""
        self._began = clock()

    def state(self, *wanted: str) -> ObservedQueue | None:
        """The queue once its status says one of `wanted`."""
        queue = fetch(self._place.reader, QUEUES, "", self._name, ObservedQueue)
        if queue.status.state in wanted:
            return queue
        self._report(f"{self._name}: {self._progress(queue)}")
        return None

    def wait(self, timeout: Timeout, *wanted: str) -> ObservedQueue:
        return until(lambda: self.state(*wanted), timeout, self.left)

    def left(self) -> str:
        """What is in it, by name where that may be known."""
        queue = fetch(self._place.reader, QUEUES, "", self._name, ObservedQueue)
        groups = [f"podgroup/{each.key}" for each in groups_of(self._place, self._name)]
        names = f": {some(groups)}" if groups else ""
        alone = f"; {_ALONE}" if groups_in(queue) > len(groups) else ""
        return f"queue {self._name} is {in_it(queue)}{names}{alone}"

    def _progress(self, queue: ObservedQueue) -> str:
        if queue.status.state in ("Closing", "Closed") or clock() - self._began < _SILENCE:
            return in_it(queue)
        return f"{in_it(queue)}; nothing has changed yet, is Muster running? Try muster check"

    def _report(self, line: str) -> None:
        if line != self._reported:
            self._reported = line
            click.echo(line, err=True)


def in_it(queue: ObservedQueue) -> str:
    """`Closing, 3 groups left: 1 waits, 2 run`."""
    fare, total = _fare(queue), groups_in(queue)
    parts = ", ".join(f"{count} {in_number(verb, count)}" for verb, count in fare.items() if count)
    groups = f", {total} group{'s' if total != 1 else ''} left: {parts}" if total else ""
    return f"{queue.state}{groups}"


def groups_in(queue: ObservedQueue) -> int:
    return sum(_fare(queue).values())


def _fare(queue: ObservedQueue) -> dict[str, int]:
    counts = queue.counts
    return {
        "waits": counts["pending"],
        "is Inqueue": counts["inqueue"],
        "runs": counts["running"],
        "has ended": counts["completed"] + counts["failed"] + counts["aborted"],
        "is unclear": counts["unknown"],
    }


_OF_MANY = {"is Inqueue": "are Inqueue", "has ended": "have ended", "is unclear": "are unclear"}


def in_number(verb: str, count: int) -> str:
    return verb if count == 1 else _OF_MANY.get(verb, verb.removesuffix("s"))


def groups_of(place: ClusterAccess, queue: str) -> list[ObservedGroup]:
    """Of all namespaces where that is allowed."""
    evidence = Evidence(place, "")
    return [each for each in evidence.groups if evidence.queue_of(each) == queue]


def pods_outside(place: ClusterAccess, queue: str) -> list[str]:
    """The pods that name a queue, wait, and are in no PodGroup: nothing but themselves keeps them there."""
    evidence = Evidence(place, "")
    groups = {each.key for each in evidence.groups}
    return [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in evidence.waiting_pods
        if ours(pod)
        and evidence.queue_of_pod(pod) == queue
        and f"{pod.metadata.namespace}/{group_name(pod)}" not in groups
    ]


def some(names: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
