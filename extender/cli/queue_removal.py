"""Waits for the state of a queue, and the steps that delete a queue. Progress is printed on stderr."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import click

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.api.units import listed
from extender.cli.access import ClusterAccess
from extender.cli.kinds import job_row
from extender.cli.lookup import fetch
from extender.cli.output import CLIENT, SERVER, echo, show_done
from extender.cli.queue_spec import Timeout, update_spec
from extender.cli.why.evidence import Evidence, is_ours
from extender.domain.explain.observed_objects import ObservedGroup, ObservedQueue
from extender.domain.model.ownership import controller_of, group_name
from extender.kube.errors import Conflict, NotFound
from extender.kube.resources import POD_GROUPS, QUEUES, Resource
from extender.terminal.text import working

T = TypeVar("T")

_PROTECTED = (DEFAULT_QUEUE, ROOT_QUEUE)
POLL_PERIOD = 0.5  # seconds between two polls
_MAX_WAIT_FOR_STATE = 15.0  # seconds without a state until the command asks whether Muster runs
_MAX_LISTED = 6  # maximum of listed groups or pods
_PODS_WITHOUT_GROUP = "pods that have no PodGroup are left to their owners"

clock: Callable[[], float] = time.monotonic
pause: Callable[[float], Any] = time.sleep


def wait_until(poll: Callable[[], T | None], timeout: Timeout, explain_wait: Callable[[], str]) -> T:
    """Return the first result of `poll` that is not None. After the timeout, the command fails.

    `explain_wait` returns the text of the error.
    """
    deadline = clock() + timeout.seconds
    with working("waiting"):
        while (result := poll()) is None:
            if timeout.seconds and clock() >= deadline:
                raise click.ClickException(f"--timeout: {timeout.text} are over: {explain_wait()}")
            pause(POLL_PERIOD)
    return result


class WatchedQueue:
    """Queue that the command polls. Each change of its contents is printed as a line on stderr."""

    def __init__(self, access: ClusterAccess, name: str) -> None:
        self._access = access
        self._name = name
        self._reported_line = ""
        self._began = clock()

    def queue_in(self, *states: str) -> ObservedQueue | None:
        """Return the queue if its status has one of `states`, else None."""
        queue = fetch(self._access.reader, QUEUES, "", self._name, ObservedQueue)
        if queue.status.state in states:
            return queue
        line = f"{self._name}: {contents_of(queue)}"
        if queue.status.state not in ("Closing", "Closed") and clock() - self._began >= _MAX_WAIT_FOR_STATE:
            line = f"{line}; nothing has changed yet, is Muster running? Try muster check"
        if line != self._reported_line:
            self._reported_line = line
            click.echo(line, err=True)
        return None

    def wait(self, timeout: Timeout, *states: str) -> ObservedQueue:
        return wait_until(lambda: self.queue_in(*states), timeout, self.remaining_text)

    def remaining_text(self) -> str:
        """Return a sentence about the groups in the queue, with their names if the groups may be read."""
        queue = fetch(self._access.reader, QUEUES, "", self._name, ObservedQueue)
        groups = [f"podgroup/{group.key}" for group in Evidence(self._access, "").groups_in(self._name)]
        names = f": {listed(groups, _MAX_LISTED)}" if groups else ""
        groupless_text = f"; {_PODS_WITHOUT_GROUP}" if sum(queue.counts.values()) > len(groups) else ""
        return f"queue {self._name} is {contents_of(queue)}{names}{groupless_text}"


def contents_of(queue: ObservedQueue) -> str:
    """Return the state and contents of a queue, such as `Closing, 3 groups left: 1 waits, 2 run`."""
    counts = queue.counts
    rows = (
        ("waits", "wait", counts["pending"]),
        ("is Inqueue", "are Inqueue", counts["inqueue"]),
        ("runs", "run", counts["running"]),
        ("has ended", "have ended", counts["completed"] + counts["failed"] + counts["aborted"]),
        ("is unclear", "are unclear", counts["unknown"]),
    )
    texts = (f"{n} {singular if n == 1 else plural}" for singular, plural, n in rows if n)
    total = sum(counts.values())
    groups = f", {total} group{'s' if total > 1 else ''} left: {', '.join(texts)}" if total else ""
    return f"{queue.state}{groups}"


def pods_without_podgroup(access: ClusterAccess, queue: str) -> list[str]:
    """Return the pending pods that name a queue and are in no PodGroup.

    The queue's status does not count them.
    """
    evidence = Evidence(access, "")
    groups = {group.key for group in evidence.groups}
    in_queue = [pod for pod in evidence.waiting_pods if is_ours(pod) and evidence.queue_of_pod(pod) == queue]
    groupless_pods = [pod for pod in in_queue if f"{pod.metadata.namespace}/{group_name(pod)}" not in groups]
    return [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in groupless_pods]


class RemovedObject(NamedTuple):
    """Object that is deleted together with a queue. `kind` is in kubectl's notation."""

    resource: Resource
    kind: str
    namespace: str
    name: str
    uid: str


class Removal:
    """Steps to delete a queue.

    Admission refuses the deletion of a queue that is not Closed. The command checks the state first. So its
    error names the remaining groups, and --cascade deletes no groups of a queue that cannot be deleted.

    Attributes:
        with_jobs: Whether the jobs that own the queue's groups are deleted, too.
    """

    def __init__(
        self, access: ClusterAccess, name: str, timeout: Timeout, dry_run: str, with_jobs: bool
    ) -> None:
        self._access = access
        self._name = name
        self._timeout = timeout
        self._dry_run = dry_run
        self._with_jobs = with_jobs
        self._deleted_uids: set[str] = set()  # UIDs of groups whose deletion was requested

    def run(self, cascade: bool, wait: bool) -> None:
        queue = fetch(self._access.reader, QUEUES, "", self._name, ObservedQueue)
        self._check_deletable(queue, cascade)
        is_real = self._dry_run == "none"
        if cascade and is_real:
            update_spec(self._access, self._name, {"state": "Closed"}, self._dry_run)
            queue_state = WatchedQueue(self._access, self._name)
            queue_state.wait(self._timeout, "Closing", "Closed")
            wait_until(lambda: self._queue_if_empty(queue_state), self._timeout, queue_state.remaining_text)
        elif cascade:
            for group in Evidence(self._access, "").groups_in(self._name):
                self._show(self._parts(group), "would be deleted")
        # The server's dry run would refuse to delete an open queue, and --cascade closes the queue first.
        is_server_dry_run = self._dry_run == SERVER
        if self._dry_run != CLIENT and not (is_server_dry_run and cascade):
            self._access.editor.delete(QUEUES, "", self._name, queue.metadata.uid, is_server_dry_run)
        show_done(self._name, "deleted", self._dry_run)
        if wait and is_real:
            wait_until(self._is_gone, self._timeout, lambda: f"queue {self._name} is still there")
        pods = pods_without_podgroup(self._access, self._name) if cascade and is_real else []
        if pods:
            predicate = "pod still names it and waits" if len(pods) == 1 else "pods still name it and wait"
            remedy = f"delete their owners, or let them name another queue than {self._name}"
            message = f"{self._name}: {len(pods)} {predicate}: {listed(pods, _MAX_LISTED)}"
            click.echo(f"{message}\nTo end the wait: {remedy}", err=True)

    def _check_deletable(self, queue: ObservedQueue, cascade: bool) -> None:
        name = self._name
        if name in _PROTECTED:
            raise click.ClickException(f"queue {name} cannot be deleted: {' and '.join(_PROTECTED)} stay")
        queues = self._access.reader.list(QUEUES, "", ObservedQueue)
        if children := [other.name for other in queues if other.spec.parent == name]:
            message = f"queue {name} has queues below it: {', '.join(children)}"
            raise click.ClickException(f"{message}\nDelete them first, or give them another --parent.")
        if not cascade and queue.status.state != "Closed":
            message = f"queue {name} is {contents_of(queue)}; only a Closed queue can be deleted"
            steps = f"muster queue close {name} --wait, or muster queue delete {name} --cascade"
            raise click.ClickException(f"{message}\nTo close it: {steps}")

    def _queue_if_empty(self, queue_state: WatchedQueue) -> ObservedQueue | None:
        """Return the queue if it is Closed.

        Otherwise delete its groups, including groups that were created in the meantime.
        """
        for group in Evidence(self._access, "").groups_in(self._name):
            if group.metadata.uid in self._deleted_uids:
                continue
            self._deleted_uids.add(group.metadata.uid)
            for part in self._parts(group):
                with suppress(NotFound, Conflict):  # it was deleted in the meantime
                    self._access.editor.delete(part.resource, part.namespace, part.name, part.uid)
                    self._show([part], "deleted")
        return queue_state.queue_in("Closed")

    def _parts(self, group: ObservedGroup) -> list[RemovedObject]:
        """Return the objects to delete for a group: its job if the command deletes jobs, then the group."""
        owner, parts = controller_of(group.metadata.owner_references), []
        row = job_row(owner.api_version, owner.kind) if owner and self._with_jobs else None
        if owner and row:
            resource = Resource(f"/apis/{owner.api_version}", row.plural)
            parts = [RemovedObject(resource, row.qualified, group.namespace, owner.name, owner.uid)]
        kind = "podgroup.scheduling.volcano.sh"
        return [*parts, RemovedObject(POD_GROUPS, kind, group.namespace, group.name, group.metadata.uid)]

    def _show(self, parts: list[RemovedObject], participle: str) -> None:
        for part in parts:
            echo(f"{part.kind}/{part.name} {participle} (namespace {part.namespace})")

    def _is_gone(self) -> bool | None:
        """Return True if the queue does not exist any more, else None."""
        try:
            self._access.reader.get(QUEUES, "", self._name, ObservedQueue)
        except NotFound:
            return True
        return None
