"""Viewers, and what they may see and do as the API server judges. What it granted counts for a few seconds
more, so that a right that is withdrawn has gone soon; what it refused a little longer, since that shows
nobody anything."""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from extender.dashboard.remembered import Remembered
from extender.dashboard.source import Unsure
from extender.domain.admission.access import Subject
from extender.kube.access import Right
from extender.kube.connection import Connection
from extender.kube.requests import Editor
from extender.kube.resources import POD_GROUPS, QUEUES
from extender.kube.writers import TokenBucket

LONGEST_NAME = 253  # characters of any name in the API
_GRANTED, _REFUSED = 4.0, 60.0  # seconds
_MOST = 32_768  # answers that are kept
_AT_ONCE = 4  # questions on their way
# Of them, a second and at once: the account that asks is that which binds pods.
_PACE, _BURST = 500.0, 3000.0
_MOST_NAMESPACES = 1000  # in which a right is asked for at a time


class Grants:
    """Of everybody. `judge`: one question to the API server; raises ApiError."""

    def __init__(
        self, judge: Callable[[Subject, Right], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._judge = judge
        self._clock = clock
        self._turns = TokenBucket(_PACE, _BURST, clock())
        self._lock = Lock()
        self._answers: Remembered[tuple[Subject, Right], bool] = Remembered(
            _MOST, lambda granted: _GRANTED if granted else _REFUSED, clock
        )
        self._pool = ThreadPoolExecutor(_AT_ONCE, "dashboard-rights")

    def granted(self, who: Subject, right: Right) -> bool:
        """Raises Unsure."""
        if max(map(len, right)) > LONGEST_NAME:  # there is no such object, and nobody fills our memory
            return False
        return self._answers.get((who, right), lambda: self._ask(who, right))

    def _ask(self, who: Subject, right: Right) -> bool:
        with self._lock:
            if not self._turns.take(self._clock()):
                raise Unsure("too many rights are asked for at once: wait a moment")
        return self._judge(who, right)

    def where(self, who: Subject, right: Right, namespaces: Collection[str]) -> frozenset[str]:
        """Those of the namespaces in which it is granted, of the first thousand by name. Raises Unsure."""
        if self.granted(who, right):
            return frozenset(namespaces)
        asked = [right._replace(namespace=it) for it in sorted(namespaces)[:_MOST_NAMESPACES]]
        known = {it: self._answers.known((who, it)) for it in asked}
        open_ = [it for it, granted in known.items() if granted is None]
        known.update(zip(open_, self._pool.map(lambda it: self.granted(who, it), open_), strict=True))
        return frozenset(it.namespace for it, granted in known.items() if granted)


@dataclass(frozen=True)
class JudgedViewer:
    """`connect`: the API server with the viewer's own credentials, and no others."""

    who: Subject
    secret: str
    grants: Grants
    connect: Callable[[], AbstractContextManager[Connection]]

    @property
    def name(self) -> str:
        return self.who.user

    def may(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return self.grants.granted(self.who, Right(verb, group, resource, "", namespace, name))

    def where(self, verb: str, group: str, resource: str, namespaces: Collection[str]) -> frozenset[str]:
        return self.grants.where(self.who, Right(verb, group, resource), namespaces)

    def patch(self, resource: str, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        with self.connect() as connection:
            if resource == QUEUES.plural:
                Editor(connection).change_queue(name, patch["spec"])
            else:
                Editor(connection).patch(POD_GROUPS, namespace, name, patch)
