"""Faults between a client and the API server. A test declares a fault in advance; a proxy executes it."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

BINDING = r"/binding$"
ACCESS_REVIEWS = "/selfsubjectaccessreviews"
ALL_REQUESTS = 10**6  # more requests than a test sends
Pieces = Iterator[bytes]


@dataclass
class Fault:
    """Fault for the next `times` requests that match.

    A request matches by its method, its path, texts in its body and query, and the beginning of its
    User-Agent.
    """

    method: str
    path: str
    in_body: bytes = b""
    query: str = ""
    agent: str = ""
    status: int | None = None
    message: str = "injected by the test"
    before: Callable[[], object] = lambda: None  # called before the proxy forwards the request
    instead: Callable[[str], str] = lambda target: target  # returns the changed path and query of the request
    pieces: Callable[[Pieces], Pieces] = iter  # returns the changed pieces of a streamed answer
    after: Callable[[], object] = lambda: None  # called before the caller gets the answer
    answered: bool = True  # whether the caller gets the answer
    # whether the proxy sends the request twice, so that the caller gets the second answer
    twice: bool = False
    # whether the proxy drops the request if the caller hangs up, as an API server does
    while_awaited: bool = False
    times: int = 1  # number of further requests that get this fault
    hit: threading.Event = field(default_factory=threading.Event)  # set when a request gets this fault

    def matches(self, method: str, target: str, body: bytes = b"", agent: str = "") -> bool:
        """Return whether this fault applies to a request."""
        if self.times <= 0 or self.method != method or self.in_body not in body:
            return False
        path, _, query = target.partition("?")
        return bool(re.search(self.path, path)) and self.query in query and agent.startswith(self.agent)

    def body(self) -> bytes:
        """Return the body of the answer: a Status object, as the API server sends it."""
        reason = {404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests"}.get(
            self.status or 0, "InternalError"
        )
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return json.dumps({**status, "message": self.message, "reason": reason, "code": self.status}).encode()


def answer(status: int, method: str = "POST", path: str = BINDING, times: int = 1) -> Fault:
    """Return a fault that answers with a status. The request does not reach the API server."""
    return Fault(method, path, status=status, times=times)


def lose_answer(method: str = "POST", path: str = BINDING, times: int = 1) -> Fault:
    """Return a fault that lets a request succeed, and cuts the connection before the answer."""
    return Fault(method, path, answered=False, times=times)


def hold_answer(released: threading.Event) -> Fault:
    """Return a fault that delays the answer to a binding until the test releases it.

    The caller sees a timeout, although its request has succeeded.
    """
    return Fault("POST", BINDING, after=released.wait)


def hold_request(
    released: threading.Event, method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that delays a request until the test releases it.

    `fault.hit` is set when the request arrives at the proxy.
    """
    return Fault(method, path, before=released.wait, times=times)


def keep_gate_shut(released: threading.Event, pod: str) -> Fault:
    """Return a fault that delays the removal of a pod's scheduling gate until the test releases it.

    The pod's gang meanwhile waits at the barrier.
    """
    return hold_request(released, "PATCH", rf"/pods/{pod}$", times=ALL_REQUESTS)


def lose_request(
    released: threading.Event, method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that lets a request hang until the test releases it, and then drops the request."""
    return Fault(method, path, status=500, before=released.wait, times=times)


def pass_on(times: int = 1) -> Fault:
    """Return a fault that changes nothing, so that faults injected later apply to later bindings."""
    return Fault("POST", BINDING, times=times)


def before_request(
    action: Callable[[], object], method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that calls `action` just before a request is forwarded, for example to delete a pod."""
    return Fault(method, path, before=action, times=times)
