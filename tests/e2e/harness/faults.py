"""Faults between a client and the API server, declared in advance and executed once."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

BINDING = r"/binding$"
ACCESS_REVIEWS = "/selfsubjectaccessreviews"
OFTEN = 10**6  # more requests than a test sends
Pieces = Iterator[bytes]


@dataclass
class Fault:
    """Fault for the next `times` matching requests.

    A request matches by method, path, texts in body and query, and the beginning of its User-Agent.
    """

    method: str
    path: str
    in_body: bytes = b""
    query: str = ""
    agent: str = ""
    status: int | None = None
    message: str = "injected by the test"
    before: Callable[[], object] = lambda: None
    instead: Callable[[str], str] = lambda target: target  # changes path and query
    pieces: Callable[[Pieces], Pieces] = iter  # changes a streamed answer
    after: Callable[[], object] = lambda: None
    answered: bool = True
    twice: bool = False  # the request is sent twice, and the caller gets the second answer
    while_awaited: bool = False  # the request is dropped if its caller hangs up, as by an API server
    times: int = 1
    hit: threading.Event = field(default_factory=threading.Event)

    def matches(self, method: str, target: str, body: bytes = b"", agent: str = "") -> bool:
        if self.times <= 0 or self.method != method or self.in_body not in body:
            return False
        path, _, query = target.partition("?")
        return bool(re.search(self.path, path)) and self.query in query and agent.startswith(self.agent)

    def body(self) -> bytes:
        """Return the answer as a Status of the API server."""
        reason = {404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests"}.get(
            self.status or 0, "InternalError"
        )
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return json.dumps({**status, "message": self.message, "reason": reason, "code": self.status}).encode()


def answer(status: int, method: str = "POST", path: str = BINDING, times: int = 1) -> Fault:
    """Return a fault that answers with a status; the request does not reach the API server."""
    return Fault(method, path, status=status, times=times)


def lose_answer(method: str = "POST", path: str = BINDING, times: int = 1) -> Fault:
    """Return a fault that lets a request succeed, and cuts the connection before the answer."""
    return Fault(method, path, answered=False, times=times)


def hold_answer(released: threading.Event) -> Fault:
    """Return a fault that delays the answer until the test releases it: a timeout after a success."""
    return Fault("POST", BINDING, after=released.wait)


def hold_request(
    released: threading.Event, method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that delays a request until the test releases it.

    `fault.hit` is set when the request arrives.
    """
    return Fault(method, path, before=released.wait, times=times)


def keep_gate_shut(released: threading.Event, pod: str) -> Fault:
    """Return a fault that delays the removal of a pod's gate, so that its gang waits at the barrier."""
    return hold_request(released, "PATCH", rf"/pods/{pod}$", times=OFTEN)


def lose_request(
    released: threading.Event, method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that lets a request hang until the test releases it, and then drops it."""
    return Fault(method, path, status=500, before=released.wait, times=times)


def pass_on(times: int = 1) -> Fault:
    """Return a fault that passes requests on, so that further faults meet only later requests."""
    return Fault("POST", BINDING, times=times)


def before_request(
    action: Callable[[], object], method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that calls `action` just before a request, for example to delete a pod."""
    return Fault(method, path, before=action, times=times)
