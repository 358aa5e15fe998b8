"""Recorder of a scheduler's calls to its extender, as a proxy that changes nothing.

The recorder keeps the calls in order. Each call has the kind of its answer, but no UIDs, times or addresses.
"""

import http.client
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
_UNANSWERED = "(no answer yet)"


@dataclass
class RecordedCall:
    """Recorded call, with the nodes that the call names and with the kind of the answer."""

    verb: str
    pod: str
    nodes: frozenset[str]
    answer: str = _UNANSWERED

    def __str__(self) -> str:
        return f"{self.verb} {self.pod} on {', '.join(sorted(self.nodes))}: {self.answer}"


class Recorder:
    """Recorder of the calls to Muster: `with Recorder(muster.address) as recorder:`.

    The scheduler calls `recorder.address`.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._calls: list[RecordedCall] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="recorder")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Recorder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def record(self, verb: str, args: Json) -> RecordedCall:
        """Record a call, and return the record. The answer is set later."""
        call = RecordedCall(verb, _pod_name(args), frozenset(_node_names(verb, args)))
        with self._lock:
            self._calls.append(call)
        return call

    def calls(self) -> list[RecordedCall]:
        with self._lock:
            return list(self._calls)


def _is_done(call: RecordedCall) -> bool:
    return call.answer != _UNANSWERED


def _pod_name(args: Json) -> str:
    name: str = args["PodName"] if "PodName" in args else args["Pod"]["metadata"]["name"]
    return name


def _node_names(verb: str, args: Json) -> Iterable[str]:
    match verb:
        case "bind":
            return [args["Node"]]
        case "preempt":
            return args["NodeNameToMetaVictims"] or ()
    return args["NodeNames"] or ()


def answer_kind(verb: str, answer: Any) -> str:
    """Return the kind of an answer, which is the part that determines the scheduler's next step."""
    match verb:
        case "filter":
            refused_nodes = (answer.get("FailedNodes") or {}) | (
                answer.get("FailedAndUnresolvableNodes") or {}
            )
            return _filter_answer_kind(answer, sorted(set(refused_nodes.values())))
        case "bind":
            return answer["Error"] or "bound"
        case "preempt":
            return f"may clear {sorted(answer['NodeNameToMetaVictims'] or ())}"
    return "scored"


def _filter_answer_kind(answer: Json, refusals: list[str]) -> str:
    if answer.get("Error"):
        return f"error {answer['Error']}"
    return f"passed {sorted(answer['NodeNames'])}" if answer.get("NodeNames") else f"refused {refusals}"


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Connection of the scheduler, with a separate connection to Muster."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self._muster = http.client.HTTPConnection(recorder.target)

        def finish(self) -> None:
            self._muster.close()
            super().finish()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            verb = self.path.rpartition("/")[2]
            call = recorder.record(verb, json.loads(body))
            self._muster.request("POST", self.path, body, {"Content-Type": "application/json"})
            answer = self._muster.getresponse()
            content = answer.read()
            call.answer = (
                answer_kind(verb, json.loads(content)) if answer.status == 200 else str(answer.status)
            )
            self._pass_back(answer.status, content)

        def _pass_back(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Ignore the message, since `Recorder.calls` has all calls."""

    return Handler
