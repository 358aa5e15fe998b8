"""Faults between a client and the API server, declared in advance and executed once."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

BINDING = r"/binding$"
ASKING = "/selfsubjectaccessreviews"
OFTEN = 10**6
Pieces = Iterator[bytes]


@dataclass
class Fault:
    """Fault for the next `times` matching requests.

    They match by method, path, words of the body, words of the query, and the beginning of the
    User-Agent.
    """

    method: str
    path: str
    in_body: bytes = b""
    asked: str = ""
    agent: str = ""
    status: int | None = None
    message: str = "injected by the test"
    before: Callable[[], object] = lambda: None
    instead: Callable[[str], str] = lambda target: target  # the path and query that are passed on
    pieces: Callable[[Pieces], Pieces] = iter  # how what is streamed is passed on
    after: Callable[[], object] = lambda: None
    answered: bool = True
    twice: bool = False  # passed on twice, and the second answer is the caller's
    while_awaited: bool = False  # dropped when its caller hangs up meanwhile, as an API server drops it
    times: int = 1
    hit: threading.Event = field(default_factory=threading.Event)

    def matches(self, method: str, target: str, body: bytes = b"", agent: str = "") -> bool:
        if self.times <= 0 or self.method != method or self.in_body not in body:
            return False
        path, _, query = target.partition("?")
        return bool(re.search(self.path, path)) and self.asked in query and agent.startswith(self.agent)

    def body(self) -> bytes:
        """Return an answer in the form of the API server's own refusals."""
        reason = {404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests"}.get(
            self.status or 0, "InternalError"
        )
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return json.dumps({**status, "message": self.message, "reason": reason, "code": self.status}).encode()


def answer(status: int, method: str = "POST", path: str = BINDING, times: int = 1) -> Fault:
    """Return a fault that answers with this status; the API server never sees the request."""
    return Fault(method, path, status=status, times=times)


def lose_answer(method: str = "POST", path: str = BINDING, times: int = 1) -> Fault:
    """Return a fault that lets a request succeed, but cuts the connection before the answer.

    The caller cannot know the result.
    """
    return Fault(method, path, answered=False, times=times)


def hold_answer(released: threading.Event) -> Fault:
    """Return a fault that keeps the answer until the test releases it: a timeout after success."""
    return Fault("POST", BINDING, after=released.wait)


def hold_request(
    released: threading.Event, method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that keeps a request from the API server until the test releases it.

    `fault.hit` is set when the request arrives.
    """
    return Fault(method, path, before=released.wait, times=times)


def keep_gate_shut(released: threading.Event, pod: str) -> Fault:
    """Return a fault that admits the pod only when the test releases it.

    Its gang waits at the barrier until then.
    """
    return hold_request(released, "PATCH", rf"/pods/{pod}$", times=OFTEN)


def lose_request(
    released: threading.Event, method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that hangs a request until the test releases it; it never reaches the API server."""
    return Fault(method, path, status=500, before=released.wait, times=times)


def pass_on(times: int = 1) -> Fault:
    """Return a fault that does nothing; the faults behind it are for later requests."""
    return Fault("POST", BINDING, times=times)


def before_request(
    action: Callable[[], object], method: str = "POST", path: str = BINDING, times: int = 1
) -> Fault:
    """Return a fault that acts just before a request: takes a node, deletes a pod, kills a process."""
    return Fault(method, path, before=action, times=times)
