"""Viewers, and their rights as the API server grants them.

A granted right is cached for a few seconds only, so that a withdrawn right ends soon. A refusal is cached
longer.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Generic, TypeVar

from cachetools import TLRUCache

from extender.dashboard.source import RightsUnknown
from extender.domain.admission.access import Subject
from extender.kube.access import Right
from extender.kube.connection import Connection
from extender.kube.errors import ApiError
from extender.kube.requests import Editor, Reader
from extender.kube.resources import QUEUES, Resource
from extender.kube.writers import TokenBucket

_TIMEOUT = 10.0  # maximum wait, in seconds, for a request of another thread

K = TypeVar("K")
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """Cache of at most `max_size` values. A value expires `lifetime_of(value)` seconds after its request.

    Threads that need the same value at the same time share one request. Errors are not cached.
    """

    def __init__(
        self, max_size: int, lifetime_of: Callable[[V], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._entries: TLRUCache[K, tuple[V, float]] = TLRUCache(  # values and the times of their requests
            max_size, lambda key, entry, now: entry[1] + lifetime_of(entry[0]), clock
        )
        self._pending_requests: dict[K, Future[V]] = {}
        self._lock = Lock()

    def cached_value(self, key: K) -> V | None:
        """Return the cached value; None if the cache does not have it."""
        with self._lock:
            cached = self._entries.get(key)
        return cached[0] if cached else None

    def get(self, key: K, request: Callable[[], V]) -> V:
        """Return the cached value, else the result of `request`.

        Raises:
            RightsUnknown: `request` raises ApiError. All its other errors are raised unchanged.
        """
        with self._lock:
            cached = self._entries.get(key)
            if cached is not None:
                return cached[0]
            pending = self._pending_requests.get(key)
            answer = self._pending_requests[key] = pending or Future()
        if pending is None:
            self._request(key, answer, request)
        try:
            return answer.result(_TIMEOUT)
        except TimeoutError as fault:
            raise RightsUnknown("the API server does not answer") from fault

    def _request(self, key: K, answer: Future[V], request: Callable[[], V]) -> None:
        began_at = self._clock()
        try:
            value = request()
        except ApiError as fault:
            self._forget_request(key)
            error = RightsUnknown(f"the API server could not be asked: {fault}")
            error.__cause__ = fault
            answer.set_exception(error)
        except BaseException as fault:
            self._forget_request(key)
            answer.set_exception(fault)
        else:
            with self._lock:
                self._entries[key] = (value, began_at)
            self._forget_request(key)
            answer.set_result(value)

    def _forget_request(self, key: K) -> None:
        with self._lock:
            del self._pending_requests[key]


MAX_NAME_LENGTH = 253  # maximum characters of a name in the API
_GRANT_SECONDS, _REFUSAL_SECONDS = 4.0, 60.0  # seconds for which a granted or refused right is cached
_MAX_ANSWERS = 32_768  # maximum of cached answers
_MAX_REQUESTS = 4  # maximum of concurrent requests
# Limit of requests: each second, and at once. The same account also binds pods.
_RATE, _BURST = 500.0, 3000.0
_MAX_NAMESPACES = 1000  # maximum of namespaces in which a right is checked at once


class Grants:
    """Rights of all viewers. `review` returns whether the API server grants a right; it raises ApiError."""

    def __init__(
        self, review: Callable[[Subject, Right], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._review = review
        self._clock = clock
        self._bucket = TokenBucket(_RATE, _BURST, clock())
        self._lock = Lock()
        self._answers: ExpiringCache[tuple[Subject, Right], bool] = ExpiringCache(
            _MAX_ANSWERS, lambda granted: _GRANT_SECONDS if granted else _REFUSAL_SECONDS, clock
        )
        self._pool = ThreadPoolExecutor(_MAX_REQUESTS, "dashboard-rights")

    def is_granted(self, user: Subject, right: Right) -> bool:
        """Return whether the API server grants a right to a user.

        Raises:
            RightsUnknown: The API server does not answer.
        """
        if max(map(len, right)) > MAX_NAME_LENGTH:  # such an object cannot exist; keep the cache small
            return False
        return self._answers.get((user, right), lambda: self._check_right(user, right))

    def _check_right(self, user: Subject, right: Right) -> bool:
        with self._lock:
            if not self._bucket.take(self._clock()):
                raise RightsUnknown("too many rights are asked for at once: wait a moment")
        return self._review(user, right)

    def namespaces_with_right(
        self, user: Subject, right: Right, namespaces: Collection[str]
    ) -> frozenset[str]:
        """Return the namespaces in which a user has a right. Only the first thousand by name are checked.

        Raises:
            RightsUnknown: The API server does not answer.
        """
        if self.is_granted(user, right):
            return frozenset(namespaces)
        rights = [right._replace(namespace=name) for name in sorted(namespaces)[:_MAX_NAMESPACES]]
        grants = {local_right: self._answers.cached_value((user, local_right)) for local_right in rights}
        unknown = [local_right for local_right, granted in grants.items() if granted is None]
        grants.update(zip(unknown, self._pool.map(partial(self.is_granted, user), unknown), strict=True))
        return frozenset(local_right.namespace for local_right, granted in grants.items() if granted)


@dataclass(frozen=True)
class ReviewedViewer:
    """Viewer whose rights the API server reviews.

    `connect` opens a connection with the viewer's own credentials.
    """

    user: Subject
    secret: str
    grants: Grants
    connect: Callable[[], AbstractContextManager[Connection]]

    @property
    def name(self) -> str:
        return self.user.user

    def may(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return self.grants.is_granted(self.user, Right(verb, group, resource, "", namespace, name))

    def namespaces_with_right(
        self, verb: str, group: str, resource: str, namespaces: Collection[str]
    ) -> frozenset[str]:
        return self.grants.namespaces_with_right(self.user, Right(verb, group, resource), namespaces)

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        with self.connect() as connection:
            obj: dict[str, Any] = Reader(connection).get(resource, namespace, name, dict)
            return obj

    def patch(self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        with self.connect() as connection:
            if resource is QUEUES:
                Editor(connection).change_queue(name, patch["spec"])
            else:
                Editor(connection).patch(resource, namespace, name, patch)

    def create(self, resource: Resource, namespace: str, obj: dict[str, Any]) -> None:
        with self.connect() as connection:
            Editor(connection).create(resource, namespace, obj)
