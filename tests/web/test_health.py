"""Probes as kubelets and people read them."""

from prometheus_client import CollectorRegistry, Gauge

from extender.web.health import create_health_app


def broken() -> str | None:
    raise LookupError("no such thing")


APP = create_health_app(
    live={"threads": lambda: None},
    ready={"pods": lambda: "not read yet", "nodes": lambda: None},
    registry=CollectorRegistry(),
).test_client()


def test_a_sound_process_is_simply_ok() -> None:
    for probe in ("livez", "healthz"):
        answer = APP.get(f"/{probe}")
        assert (answer.status_code, answer.text) == (200, "ok")


def test_what_fails_is_named_with_its_reason() -> None:
    answer = APP.get("/readyz")
    assert answer.status_code == 500
    assert answer.text == ("[+]threads ok\n[-]pods failed: not read yet\n[+]nodes ok\nreadyz check failed\n")


def test_an_excluded_check_is_not_asked_and_an_unknown_one_is_told() -> None:
    answer = APP.get("/readyz?verbose&exclude=pods&exclude=nothing")
    assert answer.status_code == 200
    assert answer.text == (
        "[+]threads ok\n[+]pods excluded: ok\n[+]nodes ok\n"
        "warn: no such checks to exclude: nothing\nreadyz check passed\n"
    )


def test_a_check_that_raises_has_failed() -> None:
    answer = create_health_app({"broken": broken}, {}).test_client().get("/livez")
    assert answer.status_code == 500
    assert "[-]broken failed: the check itself failed with LookupError" in answer.text


def test_notes_are_shown_to_who_asks_for_all_and_fail_nothing() -> None:
    app = create_health_app({}, {}, notes={"leadership": lambda: "follows somebody"}).test_client()
    assert app.get("/readyz?verbose").text == "[+]leadership ok: follows somebody\nreadyz check passed\n"
    assert app.get("/readyz").text == "ok"


def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Gauge("muster_example", "An example.", registry=registry).set(7)
    answer = create_health_app({}, {}, registry).test_client().get("/metrics")
    assert answer.mimetype == "text/plain"
    assert "muster_example 7.0" in answer.text


def test_our_own_metrics_are_shown_by_default() -> None:
    assert "muster_scheduler_never_called" in create_health_app({}, {}).test_client().get("/metrics").text
