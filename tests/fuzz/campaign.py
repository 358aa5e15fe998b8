"""Campaign of requests to all ports, from several threads, with checks of the answers."""

import http.client
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from threading import Lock

from tests.fuzz import messages, raw, through_view
from tests.fuzz.answers import Unreadable, statuses
from tests.fuzz.target import PATIENCE, Target

CALLERS = 8
_TLS_ALERT = b"\x15\x03"  # TLS's answer to other protocols
_AUDIT_HEADER = b"\r\naudit-id:"  # a header of the API server's answers
_WATCH_ANSWER = b"HTTP/1.1 200 "
_EVENTS = 0.3  # part of the requests to the proxy that are Events
_SILENT_SHARE = 0.01  # part of the raw requests whose callers never hang up


@dataclass
class Findings:
    """Results. `counts`: by port and kind of request, and by status. `violations`: sentences."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    silent: list[socket.socket] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def count(self, *names: str) -> None:
        with self.lock:
            self.counts.update(names)

    def record_violation(self, message: str) -> None:
        with self.lock:
            self.violations.append(message)


class Campaign:
    """Campaign, in which the seed determines all requests."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._seed = seed
        self.findings = Findings()

    def run(self, first: int, count: int, until: float) -> int:
        """Send up to `count` requests from number `first` on, and return their number.

        None begins after `until`, a time of time.monotonic().
        """
        with ThreadPoolExecutor(CALLERS) as callers:
            counts = callers.map(lambda number: self._send_one(number, until), range(first, first + count))
            return sum(counts)

    def check_silent_callers(self) -> None:
        """Check that Muster closes the connections of silent callers in time."""
        for caller in self.findings.silent:
            with caller:
                try:
                    while caller.recv(65536):
                        pass
                except TimeoutError:
                    self.findings.record_violation("a caller that fell silent was not hung up on")
                except OSError:
                    pass
        self.findings.silent.clear()

    def _send_one(self, number: int, until: float) -> bool:
        if time.monotonic() > until:
            return False
        rng = Random(f"{self._seed}/{number}")
        port = rng.choice(list(self._target.ports))
        send: Callable[[Random, str], list[int]] = self._send_raw
        if port in ("verbs", "webhooks") and rng.random() < 0.7:
            send = self._send_structured
        if port == "view" and rng.random() < 0.8:
            send = self._send_to_proxy
        try:
            codes = send(rng, port)
        except (TimeoutError, Unreadable) as fault:
            self.findings.record_violation(f"request {number} at {port}: {type(fault).__name__} {fault}")
            codes = []
        except OSError:
            codes = []  # Muster has closed the connection
        self.findings.count(f"{port} {send.__name__.strip('_')}", *(f"status {code}" for code in codes))
        for status in codes:
            if status >= 500:
                self.findings.record_violation(f"request {number} at {port}: status {status}")
        return True

    def _send_structured(self, rng: Random, port: str) -> list[int]:
        """Send a complete request and expect a complete answer."""
        if port == "verbs":
            verb = rng.choice(messages.VERBS)
            path, body = f"/v1/{verb}", messages.with_errors(rng, messages.verb_body(rng, verb))
        else:
            reviewed = rng.choice(messages.REVIEWS)
            path = f"/{reviewed}/{rng.choice(('validate', 'mutate'))}"
            body = messages.with_errors(rng, messages.review_body(rng, reviewed))
        caller = http.client.HTTPConnection("127.0.0.1", self._target.ports[port], timeout=PATIENCE)
        caller.sock = self._target.connect(port, secure=port == "webhooks")
        try:
            caller.request("POST", path, body)
            answer = caller.getresponse()
            answer.read()
        except http.client.HTTPException as fault:
            raise Unreadable(f"{type(fault).__name__} for {path}: {fault}") from fault
        finally:
            caller.close()
        return [answer.status]

    def _send_to_proxy(self, rng: Random, port: str) -> list[int]:
        """Send a request to the proxy, which answers only callers with its secret.

        Watches end by themselves, or in the middle when another one of the same program begins.
        """
        new_request = through_view.event if rng.random() < _EVENTS else through_view.request
        request = new_request(rng, self._target.secret)
        with self._target.connect(port, secure=False) as caller:
            response = _exchange(caller, request, keeps_open=True)
        try:
            codes = statuses(response, without_body=request.startswith(b"HEAD"))
        except Unreadable:
            if b"watch" not in request or not response.startswith(_WATCH_ANSWER):
                raise
            codes = []
        # Answers of the API server are not checked: it answers 500 to some invalid versions.
        return [code for code in codes if code < 500 or _AUDIT_HEADER not in response.lower()]

    def _send_raw(self, rng: Random, port: str) -> list[int]:
        secure = port == "webhooks" and rng.random() < 0.8
        caller = self._target.connect(port, secure=secure)
        if rng.random() < _SILENT_SHARE:
            caller.sendall(raw.beginning_of_request(rng))
            with self.findings.lock:
                self.findings.silent.append(caller)
            return []
        request = raw.nonsense(rng)
        with caller:
            response = _exchange(caller, request)
        is_alert = port == "webhooks" and not secure and response.startswith(_TLS_ALERT)
        return [] if is_alert else statuses(response, without_body=b"HEAD" in request)


def _exchange(caller: socket.socket, request: bytes, keeps_open: bool = False) -> bytes:
    """Return all bytes of the answer, and none if the connection breaks.

    `keeps_open`: the caller keeps its sending side open, since otherwise the proxy does not answer it.
    """
    response = b""
    try:
        caller.sendall(request)
        if not keeps_open:
            socket.socket.shutdown(caller, socket.SHUT_WR)  # ends the TCP stream, without a message of TLS
        while piece := caller.recv(65536):
            response += piece
    except TimeoutError:
        raise
    except (ConnectionError, ssl.SSLError):
        return b""
    return response
