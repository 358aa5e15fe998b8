"""The scheduling loop against an extender that does what the test says: which calls it makes, and when."""

import json
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from extender.apimachinery.kinds import NODES, PODS
from extender.apimachinery.service import Service
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import Scheduler
from tests.answering import Answering, HttpAnswer, HttpRequest
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.sim.requests import Json, pod

Answer = Callable[[Json], Any]
OWN_MESSAGE = "muster: NoRoom: no"
NO_PREEMPTION = "preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling."


class PlayedExtender(Answering):
    """Extender that passes everything and binds at once, until a test sets other answers."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self.calls: list[tuple[str, str, Any]] = []  # verb, pod, nodes or node
        self.answers: dict[str, Answer] = {"filter": self._pass, "bind": self.bind}

    def answer(self, request: HttpRequest) -> HttpAnswer:
        verb, args = request.target.rpartition("/")[2], json.loads(request.body)
        name = args["PodName"] if verb == "bind" else args["Pod"]["metadata"]["name"]
        self.calls.append((verb, name, _nodes(verb, args)))
        return HttpAnswer(200, json.dumps(self.answers[verb](args)).encode())

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


class Loop:
    """The scheduler, the extender that it asks, and objects. Pods of ours are in kube-system, ungated."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.extender = PlayedExtender(service)
        self.calls, self.answers, self.count = self.extender.calls, self.extender.answers, self.extender.count
        self.scheduler = Scheduler(service, Extender(self.extender.address), Random(0))

    def nodes(self, count: int, **options: Any) -> None:
        for number in range(count):
            self.service.create(NODES, "", objects.node(f"n{number}", **options))

    def ours(self, name: str, **options: Any) -> Json:
        return self.service.create(PODS, "", objects.pod(name, namespace="kube-system", **options))

    def found(self, name: str, namespace: str = "kube-system") -> Json:
        return self.service.get(PODS, namespace, name)

    def node_of(self, name: str, namespace: str = "kube-system") -> str:
        return str(self.found(name, namespace)["spec"].get("nodeName", ""))

    def condition_of(self, name: str) -> Json:
        conditions = self.found(name)["status"].get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})

    def change(self, name: str, how: Callable[[Json], object], subresource: str = "") -> None:
        def changed(pod: Json) -> Json:
            copy: Json = json.loads(json.dumps(pod))
            how(copy)
            return copy

        self.service.amend(PODS, "kube-system", name, changed, subresource)

    def nominated(self, name: str, node: str) -> None:
        self.change(name, lambda pod: pod["status"].update(nominatedNodeName=node), "status")

    def idle_after(self, verb: str, count: int) -> None:
        wait_for(lambda: self.count(verb) == count and not self.scheduler.busy)

    def refused(self, name: str) -> str:
        """Return the message, once the pod is unschedulable and the loop has nothing to do."""

        def there() -> bool:
            return self.condition_of(name).get("reason") == "Unschedulable" and not self.scheduler.busy

        wait_for(there)
        return str(self.condition_of(name)["message"])


@pytest.fixture
def loop(service: Service) -> Iterator[Loop]:
    loop = Loop(service)
    with loop.extender:
        loop.scheduler.start()
        yield loop
        loop.scheduler.stop()


def refuse(args: Json) -> Json:
    return {"NodeNames": [], "FailedAndUnresolvableNodes": {args["NodeNames"][0]: OWN_MESSAGE}}


def test_filter_then_bind(loop: Loop) -> None:
    loop.nodes(3)
    loop.answers["filter"] = lambda args: {"NodeNames": ["n1"]}
    loop.ours("a")
    wait_for(lambda: loop.node_of("a") == "n1")
    assert loop.calls == [("filter", "a", ["n0", "n1", "n2"]), ("bind", "a", "n1")]


def test_the_nominated_node_first_and_alone(loop: Loop) -> None:
    loop.nodes(3)
    loop.ours("a", gated=True)
    loop.nominated("a", "n2")
    loop.change("a", lambda pod: pod["spec"].pop("schedulingGates"))
    wait_for(lambda: loop.node_of("a") == "n2")
    assert loop.calls == [("filter", "a", ["n2"]), ("bind", "a", "n2")]


def test_a_refused_nominated_node_is_followed_by_all_nodes_and_the_nomination_is_removed(loop: Loop) -> None:
    loop.nodes(2)
    loop.answers["filter"] = refuse
    loop.ours("a", gated=True)
    loop.nominated("a", "n1")
    loop.change("a", lambda pod: pod["spec"].pop("schedulingGates"))
    loop.refused("a")
    assert [call[2] for call in loop.calls[:2]] == [["n1"], ["n0", "n1"]]
    assert "nominatedNodeName" not in loop.found("a")["status"]


def test_a_refused_pod_is_asked_about_once_more_and_then_rests(loop: Loop) -> None:
    """Its new condition requeues it; the second refusal is the same, changes nothing and requeues no pod."""
    loop.nodes(3)
    loop.answers["filter"] = refuse
    loop.ours("a")
    loop.idle_after("filter", 2)
    assert loop.refused("a") == f"0/3 nodes are available: 1 {OWN_MESSAGE}. {NO_PREEMPTION.format(3)}"


def test_changes_of_assigned_pods_and_nodes_requeue_refused_pods(loop: Loop) -> None:
    loop.nodes(1)
    loop.answers["filter"] = refuse
    loop.ours("a")
    loop.idle_after("filter", 2)
    events: list[Callable[[], object]] = [
        lambda: loop.service.create(PODS, "", pod("placed", nodeName="n0")),
        lambda: loop.service.delete(PODS, "default", "placed", {"gracePeriodSeconds": 0}),
        lambda: loop.service.amend(NODES, "", "n0", labelled),
        lambda: loop.change("a", lambda pod: pod["metadata"].update(annotations={"n": "1"})),
    ]
    for number, happen in enumerate(events, start=3):
        happen()
        loop.idle_after("filter", number)
    loop.service.create(PODS, "", pod("pending", cpu="100"))
    wait_for(lambda: not loop.scheduler.busy)
    assert loop.count("filter") == 6


def labelled(node: Json) -> Json:
    return {**node, "metadata": {**node["metadata"], "labels": {"l": "1"}}}


def test_without_a_fitting_node_the_extender_is_not_called(loop: Loop) -> None:
    loop.nodes(2, cpu="1")
    loop.ours("a", cpu="2")
    assert loop.refused("a") == f"0/2 nodes are available: 2 Insufficient cpu. {NO_PREEMPTION.format(2)}"
    assert loop.calls == []


def test_held_pods_keep_their_capacity_and_the_loop_continues(loop: Loop) -> None:
    release = threading.Event()

    def hold(args: Json) -> Json:
        release.wait(30)
        return loop.extender.bind(args)

    loop.nodes(1, cpu="2")
    loop.answers["bind"] = hold
    for name in ("a", "b", "c"):
        loop.ours(name, cpu="1")
    wait_for(lambda: loop.count("bind") == 2)
    wait_for(lambda: loop.condition_of("c").get("reason") == "Unschedulable")
    release.set()
    wait_for(lambda: loop.node_of("a") and loop.node_of("b"))
    assert not loop.node_of("c")


def test_a_failed_bind_frees_the_capacity_and_is_retried(loop: Loop) -> None:
    failures = iter([True])

    def fail_once(args: Json) -> Json:
        return {"Error": "muster: not yet"} if next(failures, False) else loop.extender.bind(args)

    loop.nodes(1, cpu="1")
    loop.answers["bind"] = fail_once
    loop.ours("a", cpu="1")
    wait_for(lambda: loop.condition_of("a").get("reason") == "SchedulerError")
    wait_for(lambda: loop.node_of("a") == "n0")
    assert loop.count("bind") == 2


@pytest.mark.parametrize(
    ("answer", "message"), [({"Error": "broken"}, "broken"), ({"NodeNames": ["elsewhere"]}, "elsewhere")]
)
def test_an_error_of_filter_is_the_pods_condition(loop: Loop, answer: Json, message: str) -> None:
    loop.nodes(1)
    loop.answers["filter"] = lambda _: answer
    loop.ours("a")
    wait_for(lambda: loop.condition_of("a").get("reason") == "SchedulerError")
    assert message in loop.condition_of("a")["message"]


def test_pods_of_the_default_scheduler_pass_the_extender_by(loop: Loop) -> None:
    loop.nodes(1)
    loop.service.create(PODS, "", pod("plain"))
    loop.service.create(PODS, "", pod("theirs", scheduler="another"))
    wait_for(lambda: loop.node_of("plain", "default") == "n0" and not loop.scheduler.busy)
    assert loop.calls == []
    assert not loop.node_of("theirs", "default")


def test_a_nomination_reserves_capacity_against_equal_but_not_higher_priorities(loop: Loop) -> None:
    loop.nodes(1, cpu="2")
    loop.ours("planned", cpu="2", gated=True)
    loop.nominated("planned", "n0")
    loop.ours("equal", cpu="1")
    loop.refused("equal")
    loop.ours("better", cpu="1", priorityClassName="system-node-critical")
    wait_for(lambda: loop.node_of("better") == "n0")
