"""What people see, drawn from pictures that are made up."""

import io
import json
from typing import Any

import msgspec
import pytest

from extender.sim.apiserver.kinds import NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES
from extender.sim.apiserver.service import Service
from extender.sim.show.cluster_state import ClusterState, observe
from extender.sim.show.frames import Canvas, frame
from extender.sim.show.summary import closing_summary
from extender.sim.show.transitions import TransitionLog
from extender.sim.show.views import LiveView, LogView
from tests.e2e.harness import objects
from tests.sim.requests import Json

WAITS = ("NoRoom", "cpu: 8 needed, 2 left on suitable nodes; room for 1 of 4 members")


@pytest.fixture
def state(service: Service) -> ClusterState:
    """train runs on two nodes, sweep waits."""
    service.create(QUEUES, "", objects.queue("research", weight=2))
    for number in range(3):
        service.create(NODES, "", objects.node(f"n{number}"))
    gang(service, "train", 2, "Running", ("Running", ""), on="n0")
    gang(service, "sweep", 4, "Pending", WAITS)
    told = {
        "name": "research",
        "state": "Open",
        "allocated": {"cpu": 4000},
        "deserved": {"cpu": 8000.0},
        "share": 0.5,
    }
    return observe(service.store, [told])


def gang(
    service: Service, name: str, size: int, phase: str, said: tuple[str, str], on: str = "", **status: Any
) -> None:
    group = objects.pod_group(name, namespace="default", min_member=size, queue="research")
    condition = {"type": "Scheduled", "status": "False", "reason": said[0], "message": said[1]}
    service.create(POD_GROUPS, "", {**group, "status": {"phase": phase, "conditions": [condition]}})
    for number in range(size):
        placed: Json = {"nodeName": on} if on else {}
        made = objects.pod(f"{name}-{number}", namespace="default", group=name, cpu="2", **placed)
        service.create(PODS, "", made)
        if on:
            service.amend(PODS, "default", f"{name}-{number}", lambda pod: _in_phase(pod, phase), "status")


def _in_phase(pod: Json, phase: str) -> Json:
    return {**pod, "status": {**pod["status"], "phase": phase}}


@pytest.mark.parametrize(("named", "shown"), [("default", "research"), ("other", "other")])
def test_a_namespace_names_the_queue_of_groups_that_name_none(
    service: Service, named: str, shown: str
) -> None:
    service.create(NAMESPACES, "", objects.namespace("lab", {objects.QUEUE_NAME: "research"}))
    service.create(POD_GROUPS, "", objects.pod_group("g", namespace="lab", min_member=1, queue=named))
    (group,) = observe(service.store, None).report.pod_groups
    assert group.queue == shown


def test_the_report_has_exactly_these_fields(state: ClusterState) -> None:
    report = json.loads(msgspec.json.encode(state.report))
    sweep, train = report["podGroups"]
    assert sweep == {
        "namespace": "default",
        "name": "sweep",
        "queue": "research",
        "phase": "Pending",
        "reason": "NoRoom",
        "minMember": 4,
        "bound": 0,
    }
    assert (train["phase"], train["reason"], train["bound"]) == ("Running", "", 2)
    assert report["queues"] == [
        {
            "name": "research",
            "state": "Open",
            "weight": 2,
            "deserved": {"cpu": "8"},
            "allocated": {"cpu": "4"},
            "share": 0.5,
        }
    ]
    assert report["pods"][-1] == {"namespace": "default", "name": "train-1", "node": "n0"}
    first = report["nodes"][0]
    assert set(first) == {"name", "allocatable", "used"}
    assert (first["allocatable"]["cpu"], first["used"]["cpu"], first["used"]["pods"]) == ("4", "4", "2")


def test_shares_come_from_the_queues_status_once_it_carries_them(service: Service) -> None:
    service.create(QUEUES, "", objects.queue("q"))
    status = {"state": "Open", "deserved": {"cpu": "6"}, "allocated": {"cpu": "3"}, "share": 0.5}
    service.amend(QUEUES, "", "q", lambda queue: {**queue, "status": status}, "status")
    (queue,) = observe(service.store, None).report.queues
    assert (queue.deserved, queue.allocated, queue.share) == ({"cpu": "6"}, {"cpu": "3"}, 0.5)


def test_queues_that_every_cluster_has_are_shown_where_somebody_uses_them(service: Service) -> None:
    for name in ("root", "default", "q"):
        service.create(QUEUES, "", objects.queue(name))
    assert [each.name for each in observe(service.store, None).report.queues] == ["q"]
    service.create(POD_GROUPS, "", objects.pod_group("g", namespace="default", min_member=1))
    assert [each.name for each in observe(service.store, None).report.queues] == ["default", "q"]


def drawn(state: ClusterState, canvas: Canvas) -> list[str]:
    transitions = TransitionLog()
    transitions.observe(state, 1.0)
    return [line.plain for line in frame(state, transitions.transitions, ["head"], canvas)]


def test_a_frame_says_who_waits_why_and_behind_whom(state: ClusterState) -> None:
    text = " ".join(" ".join(drawn(state, Canvas(80, 24))).split())
    assert "research ████████████░░░░░░░░░░░░ 50% 4 of 8 cpu, weight 2" in text
    assert "train research runs ██ 2 of 2 placed" in text
    assert "sweep research waits ░░░░ 0 of 4 placed, needs 4 NoRoom: the suitable nodes do not have" in text
    assert "(cpu: 8 needed, 2 left on suitable nodes; room for 1 of 4 members). Ahead of it: train." in text
    assert "3 nodes, 4 of 12 cpu in use" in text
    assert "1.0 s sweep waits: NoRoom" in text


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
def test_it_stays_on_its_canvas(state: ClusterState, width: int, height: int) -> None:
    lines = drawn(state, Canvas(width, height))
    assert max(map(len, lines)) <= width
    assert len(lines) < height


def test_many_gangs_are_counted(service: Service) -> None:
    for number in range(30):
        gang(service, f"g{number:02}", 1, "Pending", ("NotEnoughMembers", ""))
    lines = drawn(observe(service.store, None), Canvas(80, 24))
    assert any(line.startswith("and 2") and line.endswith("wait") for line in lines)


def test_without_unicode_it_is_ascii(state: ClusterState) -> None:
    assert all(line.isascii() for line in drawn(state, Canvas(60, 24, unicode=False)))


def test_a_gang_with_a_fault_of_its_own_has_nobody_ahead(service: Service) -> None:
    gang(service, "a", 1, "Running", ("Running", ""), on="n0")
    gang(service, "b", 2, "Pending", ("NotEnoughMembers", "1 of 2 pods exist"))
    (transition,) = (
        transition
        for transition in TransitionLog().observe(observe(service.store, None), 0.0)
        if transition.gang == "default/b"
    )
    assert transition.text.endswith("than the group needs to start (1 of 2 pods exist).")


def test_only_those_are_ahead_whose_status_says_so(service: Service) -> None:
    """A group that came earlier and waits as well is in nobody's way."""
    gang(service, "earlier", 1, "Pending", ("NoRoom", ""))
    gang(service, "later", 1, "Pending", ("NoRoom", ""))
    gang(service, "starts", 1, "Inqueue", ("Starting", ""))
    texts = {
        transition.gang: transition.text
        for transition in TransitionLog().observe(observe(service.store, None), 0.0)
    }
    assert texts["default/later"].endswith(" Ahead of it: starts.")
    assert texts["default/earlier"].endswith(" Ahead of it: starts.")


def test_a_gang_behind_others_is_told_in_the_words_of_its_condition(service: Service) -> None:
    gang(service, "a", 1, "Pending", ("NoRoom", ""))
    gang(service, "b", 1, "Pending", ("BehindOthers", "default/a goes first in queue research"))
    texts = {
        transition.gang: transition.text
        for transition in TransitionLog().observe(observe(service.store, None), 0.0)
    }
    assert texts["default/b"].endswith("(default/a goes first in queue research).")


def test_only_turns_are_told_and_the_end_sums_up(service: Service, state: ClusterState) -> None:
    transitions = TransitionLog()
    assert [transition.gang for transition in transitions.observe(state, 1.0)] == [
        "default/sweep",
        "default/train",
    ]
    assert transitions.observe(state, 2.0) == []
    service.delete(POD_GROUPS, "default", "sweep", {})
    for number in range(2):
        service.amend(PODS, "default", f"train-{number}", lambda pod: _in_phase(pod, "Succeeded"), "status")
    later = observe(service.store, None)
    assert [transition.text for transition in transitions.observe(later, 3.0)] == [
        "was deleted",
        "has ended: all 2 pods succeeded",
    ]
    text = "\n".join(closing_summary(later, transitions, ["some.yaml"], Canvas()))
    assert "train: started whole; all 2 pods succeeded." in text
    assert "muster run -f some.yaml" in text


# ---- where it is shown


class Terminal(io.StringIO):
    encoding = "utf-8"


def test_a_pipe_gets_plain_lines(state: ClusterState) -> None:
    stream = Terminal()
    view, transitions = LogView(stream), TransitionLog()
    view.begin(["head"])
    view.show(state, transitions.transitions, transitions.observe(state, 1.0))
    view.show(state, transitions.transitions, transitions.observe(state, 2.0))
    view.end(["over"])
    text = stream.getvalue()
    assert "\x1b" not in text
    assert text.count("train runs") == 1


def test_a_screen_rewrites_what_changed_and_gives_the_cursor_back(state: ClusterState) -> None:
    stream = Terminal()
    screen = LiveView(stream)
    screen.begin(["head"])
    screen.show(state, [], [])
    begun = stream.tell()
    screen.show(state, [], [])
    assert stream.tell() == begun
    screen.end(["over"])
    hidden, shown = stream.getvalue().index("\x1b[?25l"), stream.getvalue().rindex("\x1b[?25h")
    assert hidden < stream.getvalue().index("head") < shown < stream.getvalue().rindex("over")
