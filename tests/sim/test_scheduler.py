"""The scheduling loop against an extender that does what the test says: which calls it makes, and when."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

import pytest

from extender.apimachinery.kinds import NODES, PODS
from extender.apimachinery.service import Service
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import Scheduler
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.sim.requests import Json, pod

Answer = Callable[[Json], Any]
CONSTANT = "muster: NoRoom: no"
UNHELPFUL = "preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling."


class PlayedExtender:
    """Extender that passes everything and binds at once, until a test sets other answers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.calls: list[tuple[str, str, Any]] = []  # verb, pod, nodes or node
        self.answers: dict[str, Answer] = {"filter": self._pass, "bind": self.bind}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.address = f"127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=[0.02], daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, verb: str, args: Json) -> Any:
        name = args["PodName"] if verb == "bind" else args["Pod"]["metadata"]["name"]
        self.calls.append((verb, name, _nodes(verb, args)))
        return self.answers[verb](args)

    def count(self, verb: str) -> int:
        return sum(call[0] == verb for call in self.calls)

    def bind(self, args: Json) -> Json:
        binding = {"metadata": {"uid": args["PodUID"]}, "target": {"name": args["Node"]}}
        self._service.bind(args["PodNamespace"], args["PodName"], binding)
        return {"Error": ""}

    def _pass(self, args: Json) -> Json:
        return {"NodeNames": args["NodeNames"]}


def _nodes(verb: str, args: Json) -> Any:
    match verb:
        case "bind":
            return args["Node"]
        case "preempt":
            return list(args["NodeNameToMetaVictims"])
    return args["NodeNames"]


def _handler(played: PlayedExtender) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(played.answer(self.path.rpartition("/")[2], args)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    return Handler


@pytest.fixture
def extender(service: Service) -> Iterator[PlayedExtender]:
    played = PlayedExtender(service)
    yield played
    played.close()


@pytest.fixture
def scheduler(service: Service, extender: PlayedExtender) -> Iterator[Scheduler]:
    scheduler = Scheduler(service, Extender(extender.address), Random(0))
    scheduler.start()
    yield scheduler
    scheduler.stop()


def nodes(service: Service, count: int, **options: Any) -> None:
    for number in range(count):
        service.create(NODES, "", objects.node(f"n{number}", **options))


def ours(service: Service, name: str, **options: Any) -> Json:
    """Create a pod of ours in kube-system, where no policy puts a gate on it."""
    made = objects.pod(name, namespace="kube-system", **options)
    return service.create(PODS, "", made)


def found(service: Service, name: str, namespace: str = "kube-system") -> Json:
    return service.get(PODS, namespace, name)


def node_of(service: Service, name: str, namespace: str = "kube-system") -> str:
    return str(found(service, name, namespace)["spec"].get("nodeName", ""))


def condition_of(service: Service, name: str) -> Json:
    conditions = found(service, name)["status"].get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})


def refuse(args: Json) -> Json:
    return {"NodeNames": [], "FailedAndUnresolvableNodes": {args["NodeNames"][0]: CONSTANT}}


def test_filter_then_bind(service: Service, extender: PlayedExtender, scheduler: Scheduler) -> None:
    nodes(service, 3)
    extender.answers["filter"] = lambda args: {"NodeNames": ["n1"]}
    ours(service, "a")
    wait_for(lambda: node_of(service, "a") == "n1")
    assert extender.calls == [("filter", "a", ["n0", "n1", "n2"]), ("bind", "a", "n1")]


def test_the_nominated_node_first_and_alone(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    nodes(service, 3)
    ours(service, "a", gated=True)
    _change(service, "a", lambda pod: pod["status"].update(nominatedNodeName="n2"), "status")
    _change(service, "a", lambda pod: pod["spec"].pop("schedulingGates"))
    wait_for(lambda: node_of(service, "a") == "n2")
    assert extender.calls == [("filter", "a", ["n2"]), ("bind", "a", "n2")]


def test_a_refused_nominated_node_is_followed_by_all_nodes_and_the_nomination_is_removed(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    nodes(service, 2)
    extender.answers["filter"] = refuse
    ours(service, "a", gated=True)
    _change(service, "a", lambda pod: pod["status"].update(nominatedNodeName="n1"), "status")
    _change(service, "a", lambda pod: pod["spec"].pop("schedulingGates"))
    wait_for(lambda: condition_of(service, "a").get("reason") == "Unschedulable" and not scheduler.busy)
    assert [call[2] for call in extender.calls[:2]] == [["n1"], ["n0", "n1"]]
    assert "nominatedNodeName" not in found(service, "a")["status"]


def test_a_refused_pod_is_asked_about_once_more_and_then_rests(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    """Its new condition requeues it; the second refusal is the same, changes nothing and requeues no pod."""
    nodes(service, 3)
    extender.answers["filter"] = refuse
    ours(service, "a")
    wait_for(lambda: extender.count("filter") == 2 and not scheduler.busy)
    assert (
        condition_of(service, "a")["message"]
        == f"0/3 nodes are available: 1 {CONSTANT}. {UNHELPFUL.format(3)}"
    )


def test_changes_of_assigned_pods_and_nodes_requeue_refused_pods(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    nodes(service, 1)
    extender.answers["filter"] = refuse
    ours(service, "a")
    wait_for(lambda: extender.count("filter") == 2 and not scheduler.busy)
    events: list[Callable[[], object]] = [
        lambda: service.create(PODS, "", pod("placed", nodeName="n0")),
        lambda: service.delete(PODS, "default", "placed", {"gracePeriodSeconds": 0}),
        lambda: nodes_labelled(service),
        lambda: _change(service, "a", lambda pod: pod["metadata"].update(annotations={"n": "1"})),
    ]

    def asked_and_idle(number: int) -> bool:
        return extender.count("filter") == number and not scheduler.busy

    for number, happen in enumerate(events, start=3):
        happen()
        wait_for(partial(asked_and_idle, number))
    service.create(PODS, "", pod("pending", cpu="100"))
    wait_for(lambda: not scheduler.busy)
    assert extender.count("filter") == 6


def nodes_labelled(service: Service) -> None:
    def label(node: Json) -> Json:
        return {**node, "metadata": {**node["metadata"], "labels": {"l": "1"}}}

    service.amend(NODES, "", "n0", label)


def test_without_a_fitting_node_the_extender_is_not_called(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    nodes(service, 2, cpu="1")
    ours(service, "a", cpu="2")
    wait_for(lambda: condition_of(service, "a").get("reason") == "Unschedulable" and not scheduler.busy)
    assert extender.calls == []
    assert (
        condition_of(service, "a")["message"]
        == f"0/2 nodes are available: 2 Insufficient cpu. {UNHELPFUL.format(2)}"
    )


def test_held_pods_keep_their_capacity_and_the_loop_continues(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    release = threading.Event()

    def hold(args: Json) -> Json:
        release.wait(30)
        return extender.bind(args)

    nodes(service, 1, cpu="2")
    extender.answers["bind"] = hold
    for name in ("a", "b", "c"):
        ours(service, name, cpu="1")
    wait_for(lambda: extender.count("bind") == 2)
    wait_for(lambda: condition_of(service, "c").get("reason") == "Unschedulable")
    release.set()
    wait_for(lambda: node_of(service, "a") and node_of(service, "b"))
    assert not node_of(service, "c")


def test_a_failed_bind_frees_the_capacity_and_is_retried(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    failures = iter([True])

    def fail_once(args: Json) -> Json:
        return {"Error": "muster: not yet"} if next(failures, False) else extender.bind(args)

    nodes(service, 1, cpu="1")
    extender.answers["bind"] = fail_once
    ours(service, "a", cpu="1")
    wait_for(lambda: condition_of(service, "a").get("reason") == "SchedulerError")
    wait_for(lambda: node_of(service, "a") == "n0")
    assert extender.count("bind") == 2


def test_an_error_of_filter_is_the_pods_condition(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    nodes(service, 1)
    extender.answers["filter"] = lambda _: {"Error": "broken"}
    ours(service, "a")
    wait_for(lambda: condition_of(service, "a").get("reason") == "SchedulerError")
    assert condition_of(service, "a")["message"] == "broken"


def test_a_node_that_was_not_offered_is_an_error(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    nodes(service, 1)
    extender.answers["filter"] = lambda _: {"NodeNames": ["elsewhere"]}
    ours(service, "a")
    wait_for(lambda: condition_of(service, "a").get("reason") == "SchedulerError")


def test_pods_of_the_default_scheduler_pass_the_extender_by(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    nodes(service, 1)
    service.create(PODS, "", pod("plain"))
    service.create(PODS, "", pod("theirs", scheduler="another"))
    wait_for(lambda: node_of(service, "plain", "default") == "n0" and not scheduler.busy)
    assert extender.calls == []
    assert not node_of(service, "theirs", "default")


def test_a_nomination_reserves_capacity_against_equal_but_not_higher_priorities(
    service: Service, extender: PlayedExtender, scheduler: Scheduler
) -> None:
    nodes(service, 1, cpu="2")
    ours(service, "planned", cpu="2", gated=True)
    _change(service, "planned", lambda pod: pod["status"].update(nominatedNodeName="n0"), "status")
    ours(service, "equal", cpu="1")
    wait_for(lambda: condition_of(service, "equal").get("reason") == "Unschedulable")
    ours(service, "better", cpu="1", priorityClassName="system-node-critical")
    wait_for(lambda: node_of(service, "better") == "n0")


def _change(service: Service, name: str, how: Callable[[Json], object], subresource: str = "") -> None:
    def change(pod: Json) -> Json:
        changed: Json = json.loads(json.dumps(pod))
        how(changed)
        return changed

    service.amend(PODS, "kube-system", name, change, subresource)
