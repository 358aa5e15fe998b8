"""Probes as kubelets and people read them."""

from contextlib import closing
from http.client import HTTPConnection

from prometheus_client import CollectorRegistry, Gauge

from extender.api.setting_kinds import Address
from extender.web.side_ports import HealthApp, SideServer
from extender.web.sockets import listen


def broken() -> str | None:
    raise LookupError("no such thing")


Asked = tuple[int, str, str]  # status, content type, text
SOUND = HealthApp(
    live_checks={"threads": lambda: None},
    ready_checks={"pods": lambda: "not read yet", "nodes": lambda: None},
    registry=CollectorRegistry(),
)


def ask(app: HealthApp, *paths: str, method: str = "GET") -> list[Asked]:
    """Return the answers of its port, on one connection."""
    side = SideServer("health", listen("--health-listen", Address("127.0.0.1", 0)), app)
    answers = []
    with closing(HTTPConnection(*side.address, timeout=30)) as caller:
        for path in paths:
            caller.request(method, path)
            answer = caller.getresponse()
            answers.append((answer.status, answer.headers["Content-Type"], answer.read().decode()))
    side.stop()
    return answers


def test_a_sound_process_is_simply_ok() -> None:
    plain = (200, "text/plain; charset=utf-8", "ok")
    assert ask(SOUND, "/livez", "/healthz", "/livez?exclude=threads") == [plain] * 3


def test_a_failed_check_is_named_an_excluded_one_skipped_and_an_unknown_one_reported() -> None:
    failed, excluded = ask(SOUND, "/readyz", "/readyz?verbose&exclude=pods&exclude=nothing")
    said = "[+]threads ok\n[-]pods failed: not read yet\n[+]nodes ok\nreadyz check failed\n"
    assert failed[::2] == (500, said)
    said = "[+]threads ok\n[+]pods excluded: ok\n[+]nodes ok\n"
    unknown = "warn: no such checks to exclude: nothing\nreadyz check passed\n"
    assert excluded[::2] == (200, f"{said}{unknown}")


def test_a_check_that_raises_has_failed() -> None:
    [(status, _, text)] = ask(HealthApp({"broken": broken}, {}), "/livez")
    assert status == 500
    assert "[-]broken failed: the check itself failed with LookupError" in text


def test_reports_are_shown_in_the_verbose_answer_and_fail_no_probe() -> None:
    app = HealthApp({}, {}, ready_lines={"leadership": lambda: "follows somebody"})
    verbose, short = ask(app, "/readyz?verbose", "/readyz")
    assert verbose[2] == "[+]leadership ok: follows somebody\nreadyz check passed\n"
    assert short[2] == "ok"


def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Gauge("muster_example", "An example.", registry=registry).set(7)
    [(_, content_type, text)] = ask(HealthApp({}, {}, registry), "/metrics")
    assert content_type.startswith("text/plain")
    assert "muster_example 7.0" in text


def test_our_own_metrics_are_shown_by_default() -> None:
    assert "muster_scheduler_never_called" in ask(HealthApp({}, {}), "/metrics")[0][2]


def test_a_path_that_is_no_probe_is_refused() -> None:
    assert [status for status, *_ in ask(SOUND, "/nothing", "/livez/x")] == [404, 404]
    assert [status for status, *_ in ask(SOUND, "/livez", method="POST")] == [405]
    assert ask(SOUND, "/livez", method="HEAD")[0][0] == ask(SOUND, "/livez", method="OPTIONS")[0][0] == 200
