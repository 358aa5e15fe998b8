"""Screens of `muster run` and of other commands, drawn from invented clusters."""

import io
import json

import msgspec
import pytest

from extender.apimachinery.kinds import NAMESPACES, POD_GROUPS, PODS, QUEUES
from extender.apimachinery.service import Service
from extender.domain.model.reasons import START_WHOLE_HINT, Verdict
from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.frames import (
    LiveView,
    LogView,
    Picture,
    Rerun,
    closing_summary,
    drawn_head,
    frame,
    head_lines,
)
from extender.sim.show.sentences import TransitionLog
from extender.sim.show.tables import Canvas
from tests.e2e.harness import objects
from tests.rows import each_of
from tests.sim.stage import LINE, RUNS, SHARES, WAITS, gang, pod, seen, set_phase, small

RERUN = Rerun("muster", ["some.yaml"], has_own_nodes=False)


@pytest.fixture
def state(service: Service) -> ClusterState:
    """Return a state in which train runs on a node and sweep waits."""
    small(service)
    return seen(service, queues=SHARES, podgroups=LINE)


@pytest.mark.parametrize(("named", "shown"), [("default", "research"), ("other", "other")])
def test_a_namespace_names_the_queue_of_groups_that_name_none(
    service: Service, named: str, shown: str
) -> None:
    service.create(NAMESPACES, "", objects.namespace("lab", {objects.QUEUE_NAME: "research"}))
    service.create(POD_GROUPS, "", objects.pod_group("g", namespace="lab", min_member=1, queue=named))
    (group,) = seen(service).report.pod_groups
    assert group.queue == shown


def test_the_report_has_exactly_these_fields(state: ClusterState) -> None:
    report = json.loads(msgspec.json.encode(state.report))
    _, sweep, train = report["podGroups"]
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
    assert report["pods"][-1] == {
        "namespace": "default",
        "name": "train-1",
        "podGroup": "train",
        "phase": "Running",
        "reason": "",
        "node": "n0",
    }
    assert [pod["reason"] for pod in report["pods"][:-2]] == ["", *["NoRoom"] * 4]
    first = report["nodes"][0]
    assert set(first) == {"name", "allocatable", "used"}
    assert (first["allocatable"]["cpu"], first["used"]["cpu"], first["used"]["pods"]) == ("4", "4", "2")


def test_shares_come_from_the_queues_status_once_it_carries_them(service: Service) -> None:
    service.create(QUEUES, "", objects.queue("q"))
    status = {"state": "Open", "deserved": {"cpu": "6"}, "allocated": {"cpu": "3"}, "share": 0.5}
    service.amend(QUEUES, "", "q", lambda queue: {**queue, "status": status}, "status")
    (queue,) = seen(service).report.queues
    assert (queue.deserved, queue.allocated, queue.share) == ({"cpu": "6"}, {"cpu": "3"}, 0.5)


def test_queues_that_every_cluster_has_are_shown_where_a_group_uses_them(service: Service) -> None:
    for name in ("root", "default", "q"):
        service.create(QUEUES, "", objects.queue(name))
    assert [queue.name for queue in seen(service).report.queues] == ["q"]
    service.create(POD_GROUPS, "", objects.pod_group("g", namespace="default", min_member=1))
    assert [queue.name for queue in seen(service).report.queues] == ["default", "q"]


def drawn(state: ClusterState, canvas: Canvas) -> list[str]:
    log = TransitionLog()
    for second in (1.0, 3.0):
        log.observe(state, second)
    return [line.plain for line in frame(Picture(state, log, 3.0), ["head"], canvas)]


def test_nothing_starts_before_muster_has_decided(service: Service) -> None:
    """A group without pods is Inqueue, for operators that make pods only then; it does not start."""
    gang(service, "new", 2, "Pending", None)
    gang(service, "empty", 0, "Inqueue", ("NotEnoughMembers", "0 of 2 members exist"), min_member=2)
    gang(service, "starts", 2, "Inqueue", ("Starting", ""))
    states = {gang.group.name: gang.state for gang in seen(service).gangs}
    assert states == {"new": Verdict.UNKNOWN, "empty": Verdict.WAITING, "starts": Verdict.STARTING}
    log = TransitionLog()
    assert {each.subject for each in log.observe(seen(service), 0.0)} == {"default/empty", "default/starts"}


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
def test_the_chart_stays_within_its_canvas(state: ClusterState, width: int, height: int) -> None:
    lines = drawn(state, Canvas(width, height))
    assert max(map(len, lines)) <= width
    assert len(lines) < height


def test_many_gangs_are_counted(service: Service) -> None:
    for number in range(40):
        gang(service, f"g{number:02}", 1, "Pending", ("NotEnoughMembers", ""))
    lines = drawn(seen(service), Canvas(80, 16))
    shown = sum(line.startswith("default/g") for line in lines)
    assert f"and {40 - shown} more wait" in lines


@pytest.mark.parametrize(
    ("width", "reason"), [(99, "NoRoom"), (100, "NoRoom"), (120, "NoRoom: cpu: 8 needed")]
)
def test_names_are_whole_where_the_codes_of_reasons_leave_space(
    service: Service, width: int, reason: str
) -> None:
    for number in range(40):
        gang(service, f"{'long-' * 5}{number:02}", 1, "Pending", WAITS)
    row = drawn(seen(service), Canvas(width, 20))[-3]
    assert row.startswith(f"default/{'long-' * 5}")
    assert reason in row


@each_of(30, 80, 200)
def test_commands_are_never_folded(width: int) -> None:
    sentence = "In another terminal:"
    export = f"export KUBECONFIG=/{'x' * 90}"
    why = "muster why NAME"
    get = "kubectl get pods"
    together = f"{why};  {get}"
    assert head_lines([sentence, export, why, get], Canvas(width)) == [
        sentence,
        export,
        *([together] if width > 30 else [why, get]),
    ]
    assert head_lines([sentence], Canvas(width)) == [sentence]
    drawn = drawn_head([sentence, export], Canvas(width))
    assert "".join(line.plain for line in drawn[1:]) == export
    assert max(line.cell_len for line in drawn) <= width


def test_an_outcome_that_gangs_share_is_printed_once(service: Service) -> None:
    for name in ("a", "b", "c"):
        gang(service, name, 2, "Pending", ("NotEnoughMembers", "2 of 3 members exist"))
    gang(service, "d", 1, "Running", RUNS, on="n0")
    state, log = seen(service), TransitionLog()
    log.observe(state, 0.0)
    text = " ".join(" ".join(closing_summary(state, log, RERUN, Canvas())).split())
    assert "Each of default/a, default/b, default/c: never started; " in text
    assert "default/d: started whole" in text


def test_a_pipe_is_not_offered_to_be_read_again(state: ClusterState) -> None:
    rerun = RERUN._replace(files=["-"], is_repeatable=False)
    lines = closing_summary(state, TransitionLog(), rerun, Canvas())
    assert [line.strip() for line in lines if "muster run" in line] == ["muster run -f YOUR.yaml"]


def test_positions_are_those_that_muster_decided(service: Service) -> None:
    for name, queue in (("b", "q"), ("a", "q"), ("c", "other")):
        gang(service, name, 1, "Pending", WAITS, queue=queue)
    decided = [{"podGroup": "default/a", "position": 2}, {"podGroup": "default/b", "position": 1}]
    state = seen(service, podgroups=decided, queues=({"name": "q", "waiting": 2},))
    positions = {gang.group.name: state.position(gang) for gang in state.gangs}
    assert positions == {"a": "2 of 2", "b": "1 of 2", "c": ""}


def test_without_unicode_it_is_ascii(state: ClusterState) -> None:
    assert all(line.isascii() for line in drawn(state, Canvas(60, 30, unicode=False)))


def first_texts(service: Service) -> dict[str, str]:
    """Return what the log says first of each gang."""
    return {each.subject: each.text for each in TransitionLog().observe(seen(service), 0.0)}


def test_a_gang_with_its_own_fault_has_no_gang_ahead(service: Service) -> None:
    gang(service, "a", 1, "Running", RUNS, on="n0")
    gang(service, "b", 2, "Pending", ("NotEnoughMembers", "1 of 2 pods exist"))
    assert first_texts(service)["default/b"].endswith("than the group needs to start (1 of 2 pods exist).")


def test_only_groups_with_capacity_are_shown_as_ahead(service: Service) -> None:
    """A group that came earlier and waits as well is not in the way."""
    gang(service, "earlier", 1, "Pending", ("NoRoom", ""))
    gang(service, "later", 1, "Pending", ("NoRoom", ""))
    gang(service, "starts", 1, "Inqueue", ("Starting", ""))
    for name in ("later", "earlier"):
        assert first_texts(service)[f"default/{name}"].endswith(" Ahead of it: default/starts.")


def test_a_gang_behind_others_has_the_words_of_its_condition(service: Service) -> None:
    gang(service, "a", 1, "Pending", ("NoRoom", ""))
    message = "default/a goes first in queue research"
    gang(service, "b", 1, "Pending", ("BehindOthers", message))
    assert first_texts(service)["default/b"].endswith(f"({message}).")


def test_only_changes_are_shown_and_the_end_sums_up(service: Service, state: ClusterState) -> None:
    transitions = TransitionLog()
    seen_at = {
        second: [transition.subject for transition in transitions.observe(state, second)]
        for second in (1.0, 2.0, 3.0, 4.0)
    }  # notes, of which nothing is known yet, might be ahead of sweep
    assert seen_at == {1.0: ["default/train"], 2.0: [], 3.0: ["default/sweep"], 4.0: []}
    service.delete(POD_GROUPS, "default", "sweep", {})
    for number in range(2):
        set_phase(service, f"train-{number}", "Succeeded")
    later = seen(service)
    assert [transition.text for transition in transitions.observe(later, 5.0)] == [
        "was deleted",
        "has ended: all 2 pods succeeded",
    ]
    text = "\n".join(closing_summary(later, transitions, RERUN, Canvas()))
    assert "default/train: started whole" in text
    assert "muster run -f some.yaml" in text


# ---- what never started


def summary(state: ClusterState) -> str:
    log = TransitionLog()
    log.observe(state, 1.0)
    return " ".join(" ".join(closing_summary(state, log, RERUN, Canvas())).split())


def test_pods_that_name_a_group_almost_right(service: Service) -> None:
    gang(service, "train", 0, "Inqueue", ("NotEnoughMembers", "0 of 2 members exist"), min_member=2)
    for number in range(2):
        pod(service, f"p-{number}", "trian")
    decided = {"podGroup": "default/trian", "reason": "GroupNotFound", "detail": "no such group"}
    state = seen(service, podgroups=[decided])
    text = summary(state)
    assert "default/train: never started, and has no pods. NotEnoughMembers: " in text
    assert text.count("2 pods name trian") == 2
    assert "default/p-0, default/p-1: never started. GroupNotFound: " in text
    assert not state.everything_started
    assert [each.reason for each in state.report.pods] == ["GroupNotFound"] * 2


def test_pods_of_another_scheduler_are_no_members(service: Service) -> None:
    gang(service, "train", 0, "Inqueue", ("NotEnoughMembers", "0 of 1 members exist"), min_member=1)
    pod(service, "p", "train", schedulerName="mustre")
    text = summary(seen(service))
    assert "1 pod names it with schedulerName mustre, which is not Muster's." in text
    assert "default/p: never started. NoSuchScheduler (no scheduler named mustre runs here;" in text
    assert "Did you mean muster?" in text


def test_a_summary_without_queues_has_no_heading_for_them(service: Service) -> None:
    alone = objects.pod("p", namespace="default", scheduler="default-scheduler")
    service.create(PODS, "", alone)
    text = summary(seen(service))
    assert "default/p: has not started" in text
    assert "Used of what it deserves" not in text


def test_pods_of_another_namespace_are_no_members(service: Service) -> None:
    service.create(NAMESPACES, "", objects.namespace("lab"))
    gang(service, "train", 0, "Inqueue", ("NotEnoughMembers", "0 of 1 members exist"), min_member=1)
    service.create(PODS, "", objects.pod("p", namespace="lab", group="train"))
    decided = {"podGroup": "lab/train", "reason": "GroupNotFound", "detail": "no such group"}
    text = summary(seen(service, podgroups=[decided]))
    assert "1 pod names it in namespace lab, where there is no such group." in text
    assert "there is one in namespace default" in text


def test_members_that_a_running_gang_does_without(service: Service) -> None:
    gang(service, "train", 2, "Running", WAITS, on="n0", min_member=2)
    pod(service, "train-2", "train")
    state = seen(service)
    assert "default/train: started whole, and 2 of 3 pods run; 1 more waits. NoRoom: " in summary(state)
    assert any("NoRoom" in line for line in drawn(state, Canvas(80, 24)) if line.startswith("default/train"))
    assert not state.everything_started


def test_pods_that_need_not_start_together_say_so(service: Service) -> None:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "plain", "uid": "u", "controller": True}
    gang(service, "podgroup-u", 2, "Running", WAITS, on="n0", min_member=1)
    owned = {"ownerReferences": [reference]}
    service.amend(
        POD_GROUPS, "default", "podgroup-u", lambda obj: {**obj, "metadata": obj["metadata"] | owned}
    )
    pod(service, "plain-2", "podgroup-u")
    text = summary(seen(service))
    assert "default/job/plain: started one by one" in text
    assert START_WHOLE_HINT in text


@pytest.mark.parametrize(
    ("size", "message"), [(0, "its pods are deleted"), (1, "its pod succeeded"), (2, "all 2 pods succeeded")]
)
def test_a_gang_that_has_ended(service: Service, size: int, message: str) -> None:
    gang(service, "train", size, "Completed", ("Completed", ""))
    assert f"default/train: started whole; {message}." in summary(seen(service))


def test_a_queue_that_was_probably_meant(service: Service) -> None:
    service.create(QUEUES, "", objects.queue("research"))
    gang(service, "g", 1, "Pending", ("QueueNotFound", "queue reserch does not exist"), queue="reserch")
    assert "mean research?" in summary(seen(service))


def test_a_pod_without_group_waits_for_its_own_reason(service: Service) -> None:
    pod(service, "lone", "")
    decided = {"podGroup": "default/pod:lone", "reason": "NeverFits", "detail": "no node can hold cpu 2"}
    text = summary(seen(service, podgroups=[decided]))
    assert "default/lone: never started. NeverFits: " in text
    assert "(no node can hold cpu 2)." in text


def test_a_pod_of_which_nothing_is_known_has_not_started(service: Service) -> None:
    pod(service, "lone", "")
    state = seen(service)
    assert "default/lone: has not started; why is not known yet." in summary(state)
    assert not state.everything_started


def test_a_group_that_muster_made_is_shown_as_its_owner(service: Service) -> None:
    pod(service, "lone", "")
    (lone,) = service.store.all(PODS)
    uid = lone["metadata"]["uid"]
    group = objects.pod_group(f"podgroup-{uid}", namespace="default", min_member=1)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "lone", "uid": uid, "controller": True}
    group["metadata"]["ownerReferences"] = [owner]
    message = {
        "type": "Scheduled",
        "status": "False",
        "reason": "NeverFits",
        "message": "no node can hold cpu 2",
    }
    service.create(POD_GROUPS, "", {**group, "status": {"phase": "Pending", "conditions": [message]}})
    state = seen(service)
    assert "default/pod/lone: never started" in summary(state)
    assert [each.reason for each in state.report.pods] == ["NeverFits"]


def test_pods_that_run_are_summed_up(service: Service) -> None:
    for number in range(2):
        pod(service, f"p-{number}", "", "Running", on="n0")
    state = seen(service)
    assert "default/p-0, default/p-1: run on n0." in summary(state)
    assert state.everything_started


def test_more_nodes_are_offered_only_where_they_help(service: Service) -> None:
    gang(service, "g", 1, "Pending", ("NotEnoughMembers", "1 of 2 members exist"), min_member=2)
    assert "--nodes" not in summary(seen(service))
    gang(service, "h", 1, "Pending", WAITS)
    assert "muster run -f some.yaml --nodes 2 capacity for default/h?" in summary(seen(service))


# ---- where it is shown


class Terminal(io.StringIO):
    encoding = "utf-8"


def test_a_pipe_gets_plain_lines(state: ClusterState) -> None:
    stream = Terminal()
    view, log = LogView(stream), TransitionLog()
    view.begin(["head"])
    for second in (1.0, 2.0):
        view.show(Picture(state, log, second), log.observe(state, second))
    view.end(["over"])
    text = stream.getvalue()
    assert "\x1b" not in text
    assert text.count("train runs") == 1


def test_a_screen_rewrites_changed_lines_and_restores_the_cursor(state: ClusterState) -> None:
    stream = Terminal()
    screen = LiveView(stream)
    screen.begin(["head"])
    instant = Picture(state, TransitionLog(), 1.0)
    screen.show(instant, [])
    begun = stream.tell()
    screen.show(instant, [])
    assert stream.tell() == begun
    screen.end(["over"])
    hidden, shown = stream.getvalue().index("\x1b[?25l"), stream.getvalue().rindex("\x1b[?25h")
    assert hidden < stream.getvalue().index("head") < shown < stream.getvalue().rindex("over")
