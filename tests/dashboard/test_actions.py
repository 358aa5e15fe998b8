"""Changes from the dashboard: with the viewer's own credentials, confirmed, from our own forms only."""

from html import unescape
from typing import Any

from msgspec.structs import replace
from werkzeug.test import Client, TestResponse

from extender.api.keys import HOLD, QUEUE, START_TIMEOUTS, STARTED
from extender.api.summaries import GroupSummary, Overview
from extender.api.workloads.further_kinds import further_kinds, with_further
from extender.api.workloads.shape import Kinds
from extender.api.workloads.table import WORKLOADS
from extender.dashboard.app import create_dashboard_app, csrf_token
from extender.kube.errors import Refused, Unreachable, parse_refusal
from tests.dashboard.standins import SomeSource, SomeViewer
from tests.rows import each_of

RUNS = GroupSummary("team", "of-job", called="job/train", is_job=True, verdict="Running")
JOB = GroupSummary(namespace="team", name="of-job", called="job/train", is_job=True)


class Screen:
    """A browser of one viewer."""

    def __init__(
        self, viewer: SomeViewer | None = None, group: GroupSummary = JOB, kinds: Kinds = WORKLOADS
    ) -> None:
        self.viewer = viewer or SomeViewer()
        source = SomeSource(Overview(version="1", at="", groups=(group,)))
        self.client = Client(create_dashboard_app(source, lambda request: self.viewer, kinds=kinds))

    def send(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> TestResponse:
        form = {"csrf": csrf_token(self.viewer), "confirmed": "yes", **fields}
        return self.client.post(path, data=form, headers=headers)


def annotated(notes: dict[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"annotations": notes}}


@each_of(
    ("/groups/team/train/hold", {}, ("podgroups", "team", "train", annotated({HOLD: "true"}))),
    (
        "/groups/team/train/resume",
        {},
        ("podgroups", "team", "train", annotated({HOLD: None, START_TIMEOUTS: None})),
    ),
    (
        "/groups/team/train/priority",
        {"priority_class": "high"},
        ("podgroups", "team", "train", {"spec": {"priorityClassName": "high"}}),
    ),
    ("/queues/research/open", {}, ("queues", "", "research", {"spec": {"state": "Open"}})),
    ("/queues/research/close", {}, ("queues", "", "research", {"spec": {"state": "Closed"}})),
    ("/queues/research/hold", {}, ("queues", "", "research", {"spec": {"stopPolicy": "Hold"}})),
    ("/queues/research/resume", {}, ("queues", "", "research", {"spec": {"stopPolicy": "None"}})),
)
def test_a_confirmed_action_writes_what_the_command_writes(path: str, fields: Any, patched: Any) -> None:
    screen = Screen()
    answer = screen.send(path, **fields)
    assert (answer.status_code, answer.headers["Location"]) == (303, path.rpartition("/")[0])
    assert screen.viewer.patched == [patched]


def job(suspend: bool, started: str = "", queue: str = "research") -> dict[str, Any]:
    meta = {
        "name": "train",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "annotations": ({STARTED: started} if started else {}) | ({QUEUE: queue} if queue else {}),
    }
    template = {"spec": {"schedulerName": "muster", "containers": [{"name": "main"}]}}
    spec = {"suspend": suspend, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


SEEN = {"uid": "u", "resourceVersion": "7"}
OF_JOB = "/namespaces/team/job/train"


@each_of(
    ("stop", RUNS, job(False, "then"), [{"spec": {"suspend": True}, "metadata": SEEN}]),
    ("stop", replace(RUNS, is_job=False), job(False, "then"), [
        {"spec": {"suspend": True}, "metadata": SEEN},
    ]),
    ("resume", replace(RUNS, stopped=True), job(True, "then"), [
        annotated({HOLD: None, START_TIMEOUTS: None}), {"metadata": {"annotations": {STARTED: None}, **SEEN}},
    ]),
    ("resume", replace(RUNS, stopped=True), job(True, "then", queue=""), [
        annotated({HOLD: None, START_TIMEOUTS: None}),
        {"spec": {"suspend": False}, "metadata": {"annotations": {STARTED: None}, **SEEN}},
    ]),
)  # fmt: skip
def test_a_job_is_stopped_and_resumed_as_by_the_command(
    action: str, group: GroupSummary, obj: dict[str, Any], patches: list[dict[str, Any]]
) -> None:
    screen = Screen(SomeViewer(objects={("jobs", "team", "train"): obj}), group)
    assert f'action="{OF_JOB}/{action}"' in screen.client.get(OF_JOB).text
    unconfirmed = screen.send(f"{OF_JOB}/{action}", confirmed="")
    assert f"{action.capitalize()} job/train in namespace team?" in unconfirmed.text
    assert screen.viewer.patched == []
    answer = screen.send(f"{OF_JOB}/{action}")
    assert (answer.status_code, answer.headers["Location"]) == (303, OF_JOB)
    assert [patch for *_, patch in screen.viewer.patched] == patches


def test_a_volcano_job_is_stopped_by_a_command() -> None:
    meta = {"name": "train", "uid": "u", "resourceVersion": "7"}
    obj = {"metadata": meta, "status": {"state": {"phase": "Running"}}}
    screen = Screen(SomeViewer(objects={("jobs", "team", "train"): obj}), replace(RUNS, called="vcjob/train"))
    assert screen.send("/namespaces/team/vcjob/train/stop").status_code == 303
    [(plural, namespace, _, command)] = screen.viewer.patched
    assert (plural, namespace, command["action"]) == ("commands", "team", "AbortJob")


def test_a_job_of_a_kind_of_the_configuration_is_stopped() -> None:
    written = {
        "apiVersion": "x.example/v1",
        "kind": "Training",
        "plural": "trainings",
        "suspend": "spec.pause",
        "podSets": [{"template": "spec.template"}],
        "succeeded": {"conditions": ["Done"]},
        "failed": "never",
    }
    kinds, faults = further_kinds([written], "")
    assert not faults
    meta = {"name": "train", "uid": "u", "resourceVersion": "7"}
    obj = {"metadata": meta, "spec": {"pause": False}}
    group = replace(RUNS, called="training/train")
    screen = Screen(SomeViewer(objects={("trainings", "team", "train"): obj}), group, with_further(kinds))
    page = "/namespaces/team/training/train"
    assert f'action="{page}/stop"' in screen.client.get(page).text
    assert screen.send(f"{page}/stop").status_code == 303
    [(plural, *_, patch)] = screen.viewer.patched
    assert (plural, patch["spec"]) == ("trainings", {"pause": True})


def test_closing_root_names_all_queues_before_it_is_confirmed() -> None:
    screen = Screen()
    assert "all other queues" in screen.send("/queues/root/close", confirmed="").text
    assert "all other queues" not in screen.send("/queues/research/close", confirmed="").text


@each_of(
    ({("patch", "podgroups", "team")}, ["stop", "yaml"]),
    ({("patch", "jobs", "team")}, ["hold", "yaml"]),
    ({("get", "podgroups", "team")}, ["hold", "stop"]),
)
def test_a_job_has_the_actions_that_its_viewer_may_do(
    refused: set[tuple[str, ...]], shown: list[str]
) -> None:
    screen = Screen(SomeViewer(refused=refused, objects={("jobs", "team", "train"): job(False)}), RUNS)
    page = screen.client.get(OF_JOB).text
    assert [each for each in ("hold", "stop", "yaml") if f'"{OF_JOB}/{each}"' in page] == shown
    accepted = [
        each for each in ("hold", "stop") if screen.send(f"{OF_JOB}/{each}", confirmed="").status_code == 200
    ]
    assert accepted == [each for each in shown if each != "yaml"]


def test_the_yaml_of_a_job_and_its_podgroup_is_shown_as_by_kubectl() -> None:
    podgroup = {"kind": "PodGroup", "metadata": {"name": "of-job", "managedFields": [{"manager": "x"}]}}
    objects = {("podgroups", "team", "of-job"): podgroup, ("jobs", "team", "train"): job(False)}
    page = Screen(SomeViewer(objects=objects), RUNS).client.get(f"{OF_JOB}/yaml").text
    assert page.index("kind: Job") < page.index("kind: PodGroup")
    assert "managedFields" not in page
    few = SomeViewer(refused={("get", "jobs", "team")}, objects=objects)
    assert "kind: Job" not in Screen(few, RUNS).client.get(f"{OF_JOB}/yaml").text
    none = SomeViewer(refused={("get", "podgroups", "team")}, objects=objects)
    assert Screen(none, RUNS).client.get(f"{OF_JOB}/yaml").status_code == 403


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


@each_of(
    ({"a": "x" * 70_000}, "is too large"),
    (nested(900), "is nested too deeply"),
)
def test_yaml_that_would_keep_others_waiting_is_refused(spec: dict[str, Any], said: str) -> None:
    objects = {("podgroups", "team", "of-job"): {"metadata": {}, "spec": spec}}
    answer = Screen(SomeViewer(objects=objects), RUNS).client.get(f"{OF_JOB}/yaml")
    assert answer.status_code == 409
    assert said in answer.text


def test_an_action_on_a_missing_job_does_not_reveal_whether_it_exists() -> None:
    refused = SomeViewer(refused={("patch", "podgroups", "team")})
    assert Screen(refused, RUNS).send(f"{OF_JOB}/hold").status_code == 403
    assert Screen(refused).send("/namespaces/team/job/none/hold").status_code == 403
    assert Screen().send("/namespaces/team/job/none/hold").status_code == 404


def test_an_unconfirmed_action_is_asked_again_and_changes_nothing() -> None:
    screen = Screen()
    answer = screen.send("/groups/team/train/priority", confirmed="", priority_class="high")
    assert "Set the priority class of group team/train to high?" in answer.text
    assert '<input type="hidden" name="priority_class" value="high">' in answer.text
    assert csrf_token(screen.viewer) in answer.text
    assert not screen.viewer.patched


@each_of(
    ({}, {"csrf": ""}),
    ({}, {"csrf": "0" * 64}),
    ({}, {"csrf": "é"}),
    ({}, {"csrf": csrf_token(SomeViewer(secret="of another"))}),
    ({"Origin": "https://evil.example"}, {}),
    ({"Origin": "null"}, {}),
    ({"Origin": "http://["}, {}),
    ({"Origin": "http://localhost:1"}, {}),
    ({"Origin": "http://localhost.evil.example"}, {}),
    ({"Sec-Fetch-Site": "cross-site"}, {}),
    ({"Sec-Fetch-Site": "same-site"}, {}),
)
def test_a_form_that_is_not_ours_changes_nothing(headers: dict[str, str], fields: dict[str, str]) -> None:
    screen = Screen()
    assert screen.send("/groups/team/train/hold", headers, **fields).status_code == 403
    assert not screen.viewer.patched


def test_a_form_of_ours_has_our_origin() -> None:
    screen = Screen()
    ours = {"Origin": "http://LOCALHOST", "Sec-Fetch-Site": "same-origin"}
    assert screen.send("/groups/team/train/hold", ours).status_code == 303


@each_of("GET", "HEAD", "PUT", "DELETE", "PATCH")
def test_only_a_form_changes_anything(method: str) -> None:
    screen = Screen()
    form = {"csrf": csrf_token(screen.viewer), "confirmed": "yes"}
    answer = screen.client.open("/groups/team/train/hold", method=method, data=form)
    assert answer.status_code == 405
    assert not screen.viewer.patched


@each_of(
    ("/groups/team/../hold", 404),
    ("/groups/../kube-system/hold", 404),
    ("/groups/team/%2e%2e/hold", 404),
    ("/groups/team/a%2fb/hold", 404),
    ("/groups//train/hold", 404),
    ("/groups/team/tr%C3%A4in/hold", 404),
    ("/groups/team/%0d%0aX: y/hold", 404),
    ("/groups/team/train/delete", 404),
    ("/queues/a/b/hold", 404),
    ("/queues/Q/hold", 404),
)
def test_a_path_names_an_object_or_nothing(path: str, status: int) -> None:
    screen = Screen()
    assert screen.send(path).status_code == status
    assert not screen.viewer.patched


def test_a_user_without_the_right_is_refused_before_the_confirmation() -> None:
    screen = Screen(SomeViewer(refused={("patch", "queues", "")}))
    answer = screen.send("/queues/research/close", confirmed="")
    assert answer.status_code == 403
    assert "You may not patch queues.scheduling.volcano.sh" in answer.text


def test_a_group_of_a_job_gets_its_priority_from_the_job() -> None:
    screen = Screen()
    answer = screen.send("/groups/team/of-job/priority", priority_class="high")
    assert (answer.status_code, screen.viewer.patched) == (409, [])
    assert "job/train" in answer.text


def test_a_priority_class_is_a_name() -> None:
    screen = Screen()
    answer = screen.send("/groups/team/train/priority", priority_class="<b>high</b>")
    assert answer.status_code == 400
    assert "<b>" not in answer.text
    assert "invalid value '<b>high</b>'" in unescape(answer.text)


REFUSAL = b'{"code": %d, "reason": "%s", "message": "%s"}'


@each_of(
    (parse_refusal(REFUSAL % (403, b"Forbidden", b"ann cannot patch")), 403, "not allowed: ann cannot patch"),
    (parse_refusal(REFUSAL % (404, b"NotFound", b"there is none")), 404, "there is none"),
    (
        parse_refusal(REFUSAL % (403, b"", b"admission webhook x.y denied the request: <i>no</i>")),
        403,
        "refused: <i>no</i>",
    ),
    (parse_refusal(REFUSAL % (422, b"Invalid", b"no such field")), 422, "no such field"),
    (parse_refusal(REFUSAL % (401, b"Unauthorized", b"")), 401, "does not accept your credentials any more"),
    (parse_refusal(REFUSAL % (500, b"", b"etcd")), 502, "etcd"),
    (Unreachable("10.0.0.1: timed out"), 502, "cannot be reached"),
    (Refused(302), 502, "302"),
)
def test_a_refusal_of_the_api_server_is_a_sentence(fault: Exception, status: int, words: str) -> None:
    answer = Screen(SomeViewer(fault=fault)).send("/groups/team/train/hold")
    assert answer.status_code == status
    assert words in unescape(answer.text)
    assert "<i>" not in answer.text
