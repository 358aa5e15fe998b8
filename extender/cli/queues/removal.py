"""The steps of taking a queue away.

Muster's admission refuses the deletion of a queue that is not Closed. The same is looked at here first, so
that the refusal says what is left, and so that --cascade does not empty a queue that cannot go anyway.
"""

from collections.abc import Iterator

import click

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.cli.access import ClusterAccess
from extender.cli.dry_run import CLIENT, SERVER, show_done
from extender.cli.lookup import fetch
from extender.cli.observed import ObservedGroup, ObservedQueue
from extender.cli.output import echo
from extender.cli.queues.edit import updated
from extender.cli.queues.timeout import Timeout
from extender.cli.queues.waiting import WatchedQueue, groups_of, in_it, pods_outside, some, until
from extender.kube.errors import Conflict, NotFound
from extender.kube.resources import POD_GROUPS, QUEUES

_PROTECTED = (DEFAULT_QUEUE, ROOT_QUEUE)


class Removal:
    def __init__(self, place: ClusterAccess, name: str, timeout: Timeout, dry_run: str) -> None:
        self._place = place
        self._name = name
        self._timeout = timeout
        self._dry_run = dry_run
        self._asked: set[str] = set()  # UIDs of groups that were deleted already

    def run(self, cascade: bool, wait: bool) -> None:
        queue = fetch(self._place.reader, QUEUES, "", self._name, ObservedQueue)
        self._refuse_protected()
        self._refuse_children()
        if not cascade:
            self._refuse_unless_closed(queue)
        elif self._dry_run == "none":
            self._empty()
        else:
            self._show_groups()
        self._delete(queue, cascade)
        if wait and self._dry_run == "none":
            until(self._gone, self._timeout, lambda: f"queue {self._name} is still there")
        if cascade and self._dry_run == "none":
            self._show_left_pods()

    # ---- refusing

    def _refuse_protected(self) -> None:
        if self._name in _PROTECTED:
            raise click.ClickException(
                f"queue {self._name} cannot be deleted: {' and '.join(_PROTECTED)} stay"
            )

    def _refuse_children(self) -> None:
        queues = self._place.reader.list(QUEUES, "", ObservedQueue)
        children = [each.name for each in queues if each.spec.parent == self._name]
        if children:
            message = f"queue {self._name} has queues below it: {', '.join(children)}"
            raise click.ClickException(f"{message}\nDelete them first, or give them another --parent.")

    def _refuse_unless_closed(self, queue: ObservedQueue) -> None:
        if queue.status.state == "Closed":
            return
        message = f"queue {self._name} is {in_it(queue)}; only a Closed queue can be deleted"
        steps = f"muster queue close {self._name} --wait, or muster queue delete {self._name} --cascade"
        raise click.ClickException(f"{message}\nTo close it: {steps}")

    # ---- emptying

    def _empty(self) -> None:
        updated(self._place, self._name, {"state": "Closed"}, self._dry_run)
        watched = WatchedQueue(self._place, self._name)
        watched.wait(self._timeout, "Closing", "Closed")
        until(lambda: self._emptied(watched), self._timeout, watched.left)

    def _emptied(self, watched: WatchedQueue) -> ObservedQueue | None:
        """Its Closed self; else what came to it meanwhile is deleted, too."""
        for group in self._new():
            self._delete_group(group)
        return watched.state("Closed")

    def _new(self) -> Iterator[ObservedGroup]:
        groups = groups_of(self._place, self._name)
        return (each for each in groups if each.metadata.uid not in self._asked)

    def _delete_group(self, group: ObservedGroup) -> None:
        self._asked.add(group.metadata.uid)
        try:
            self._place.editor.delete(POD_GROUPS, group.namespace, group.name, group.metadata.uid)
        except (NotFound, Conflict):
            return  # gone meanwhile
        self._show_group(group, "deleted")

    def _show_groups(self) -> None:
        for group in groups_of(self._place, self._name):
            self._show_group(group, "would be deleted")

    def _show_group(self, group: ObservedGroup, done: str) -> None:
        echo(f"podgroup.scheduling.volcano.sh/{group.name} {done} (namespace {group.namespace})")

    # ---- the queue itself

    def _delete(self, queue: ObservedQueue, cascade: bool) -> None:
        """The server is not asked whether it would delete what --cascade would have closed before."""
        dry = self._dry_run == SERVER
        if self._dry_run != CLIENT and not (dry and cascade):
            self._place.editor.delete(QUEUES, "", self._name, queue.metadata.uid, dry)
        show_done(self._name, "deleted", self._dry_run)

    def _show_left_pods(self) -> None:
        if left := pods_outside(self._place, self._name):
            waits = "pod still names it and waits" if len(left) == 1 else "pods still name it and wait"
            remedy = f"end what owns them, or have them name another queue than {self._name}"
            click.echo(f"{self._name}: {len(left)} {waits}: {some(left)}\nTo end that: {remedy}", err=True)

    def _gone(self) -> bool | None:
        try:
            self._place.reader.get(QUEUES, "", self._name, ObservedQueue)
        except NotFound:
            return True
        return None
