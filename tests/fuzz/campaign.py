"""So many requests at all ports, in turn from several threads, and what was wrong with the answers."""

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
_ALERT = b"\x15\x03"  # what TLS says to those who do not speak it
_AUDITED = b"\r\naudit-id:"  # a header of the API server's answers
_WATCHED = b"HTTP/1.1 200 "
_EVENTS = 0.3  # of those to the proxy
_SILENT = 0.01  # of the raw ones: they do not even hang up


@dataclass
class Findings:
    """`counts`: by port and kind of request, and by status. `violations`: what must not be."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    silent: list[socket.socket] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def count(self, *names: str) -> None:
        with self.lock:
            self.counts.update(names)

    def violated(self, what: str) -> None:
        with self.lock:
            self.violations.append(what)


class Campaign:
    """Request number N is the same in each campaign with this seed."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._seed = seed
        self.findings = Findings()

    def run(self, first: int, count: int, until: float) -> int:
        """Send requests from number `first` on, and return their number.

        They are at most `count`, and begin before `until`, a time of time.monotonic().
        """
        with ThreadPoolExecutor(CALLERS) as callers:
            made = callers.map(lambda number: self._one(number, until), range(first, first + count))
            return sum(made)

    def hung_up_on(self) -> None:
        """Check that silent callers with half a request have been hung up on by now, or are soon."""
        for caller in self.findings.silent:
            with caller:
                try:
                    while caller.recv(65536):
                        pass
                except TimeoutError:
                    self.findings.violated("a caller that fell silent was not hung up on")
                except OSError:
                    pass
        self.findings.silent.clear()

    def _one(self, number: int, until: float) -> bool:
        if time.monotonic() > until:
            return False
        dice = Random(f"{self._seed}/{number}")
        port = dice.choice(list(self._target.ports))
        kind: Callable[[Random, str], list[int]] = self._raw
        if port in ("verbs", "webhooks") and dice.random() < 0.7:
            kind = self._structured
        if port == "view" and dice.random() < 0.8:
            kind = self._relayed
        try:
            found = kind(dice, port)
        except (TimeoutError, Unreadable) as fault:
            self.findings.violated(f"request {number} at {port}: {type(fault).__name__} {fault}")
            found = []
        except OSError:
            found = []  # it was hung up on
        self.findings.count(f"{port} {kind.__name__.strip('_')}", *(f"status {each}" for each in found))
        for status in found:
            if status >= 500:
                self.findings.violated(f"request {number} at {port}: status {status}")
        return True

    def _structured(self, dice: Random, port: str) -> list[int]:
        """Send a whole request and expect a whole answer."""
        if port == "verbs":
            verb = dice.choice(messages.VERBS)
            path, body = f"/v1/{verb}", messages.spoilt(dice, messages.verb_body(dice, verb))
        else:
            reviewed = dice.choice(messages.REVIEWS)
            path = f"/{reviewed}/{dice.choice(('validate', 'mutate'))}"
            body = messages.spoilt(dice, messages.review_body(dice, reviewed))
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

    def _relayed(self, dice: Random, port: str) -> list[int]:
        """Send a request to the proxy, which answers only callers with its secret.

        Watches end by themselves, or in the middle when another one of the same program begins.
        """
        made = through_view.event if dice.random() < _EVENTS else through_view.request
        sent = made(dice, self._target.secret)
        with self._target.connect(port, secure=False) as caller:
            got = _exchanged(caller, sent, keeps=True)
        try:
            found = statuses(got, without_body=sent.startswith(b"HEAD"))
        except Unreadable:
            if b"watch" not in sent or not got.startswith(_WATCHED):
                raise
            found = []
        # What the API server says itself is its own affair: 500 for some versions that are no numbers.
        return [each for each in found if each < 500 or _AUDITED not in got.lower()]

    def _raw(self, dice: Random, port: str) -> list[int]:
        secure = port == "webhooks" and dice.random() < 0.8
        caller = self._target.connect(port, secure=secure)
        if dice.random() < _SILENT:
            caller.sendall(raw.half(dice))
            with self.findings.lock:
                self.findings.silent.append(caller)
            return []
        sent = raw.nonsense(dice)
        with caller:
            got = _exchanged(caller, sent)
        alerted = port == "webhooks" and not secure and got.startswith(_ALERT)
        return [] if alerted else statuses(got, without_body=b"HEAD" in sent)


def _exchanged(caller: socket.socket, sent: bytes, keeps: bool = False) -> bytes:
    """Return all bytes of the answer; a caller that is hung up on has the earlier ones.

    `keeps`: the caller keeps its sending side open, since one that closes it hears no answer of the proxy.
    """
    got = b""
    try:
        caller.sendall(sent)
        if not keeps:
            socket.socket.shutdown(caller, socket.SHUT_WR)  # below TLS: nothing more comes
        while piece := caller.recv(65536):
            got += piece
    except TimeoutError:
        raise
    except (ConnectionError, ssl.SSLError):
        return b""
    return got
