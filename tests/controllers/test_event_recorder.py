"""Events on the wire: one for each object and reason, with a count, and never too many."""

from typing import Any

from prometheus_client import REGISTRY

from extender.api.objects.base import Reference
from extender.controllers.events import NORMAL, WARNING, EventRecorder
from extender.controllers.objects import queue_reference
from extender.kube.errors import Conflict, NotFound
from tests.controllers.bench import Bench

POD = Reference("v1", "Pod", "p", "team", "u1")


def other(number: int) -> Reference:
    return Reference("v1", "Pod", f"other-{number}", "team", f"other-{number}")


class Recording(Bench):
    def record(self, message: str = "m", about: Reference = POD, type_: str = NORMAL) -> "Recording":
        self.recorder.record(about, type_, "NoRoom", message)
        self.flush()
        return self

    @property
    def created(self) -> list[dict[str, Any]]:
        return [event for _, event in self.api.done("event")]

    @property
    def repeated(self) -> list[dict[str, Any]]:
        return [patch for _, patch in self.api.done("event again")]


def dropped() -> float:
    return REGISTRY.get_sample_value("muster_events_total", {"outcome": "dropped"}) or 0.0


def test_an_event_has_its_object_action_and_reason() -> None:
    bench = Recording()
    with bench.writing():
        bench.record("no capacity")
    (event,) = bench.created
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "team", "uid": "u1"}
    assert event["involvedObject"] == about
    assert (event["type"], event["reason"], event["message"], event["count"]) == (
        "Normal",
        "NoRoom",
        "no capacity",
        1,
    )
    assert event["source"] == {"component": "kube-muster"}
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert event["metadata"]["namespace"] == "team"
    assert event["metadata"]["name"].startswith("p.")


def test_a_repeated_event_counts_up_and_has_the_newest_message() -> None:
    bench = Recording()
    with bench.writing():
        bench.record("one").record("two").record("three")
    assert len(bench.created) == 1
    assert [(each["count"], each["message"]) for each in bench.repeated] == [(2, "two"), (3, "three")]


def test_another_type_is_another_event() -> None:
    bench = Recording()
    with bench.writing():
        bench.record().record(type_=WARNING)
    assert [event["type"] for event in bench.created] == ["Normal", "Warning"]


def test_an_event_that_has_expired_is_made_again() -> None:
    bench = Recording()
    with bench.writing():
        bench.record()
        bench.api.fail("event again", NotFound(404))
        bench.record("again")
    assert [event["count"] for event in bench.created] == [1, 2]


def test_an_event_whose_answer_was_lost_counts_as_created() -> None:
    bench = Recording()
    with bench.writing():
        bench.api.fail("event", Conflict(409, "AlreadyExists"))
        bench.record().record("again")
    assert [each["message"] for each in bench.repeated] == ["again"]


def test_events_of_cluster_scoped_objects_go_to_namespace_default() -> None:
    bench = Recording()
    with bench.writing():
        bench.record(about=queue_reference("research", "u"))
    (event,) = bench.created
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


def test_one_object_does_not_use_up_the_budget_of_all_and_its_own_refills() -> None:
    bench, before = Recording(), dropped()
    with bench.writing():
        for number in range(30):
            bench.record(str(number))
        bench.record(about=other(1))
        assert len(bench.created + bench.repeated) == 11
        assert dropped() - before == 20
        bench.advance(30.0)
        bench.record("later")
    assert bench.repeated[-1]["message"] == "later"


def test_all_objects_share_a_budget_of_events() -> None:
    bench = Recording()
    with bench.writing():
        for number in range(150):
            bench.record(about=other(number))
        assert len(bench.created) == 50
        assert not bench.recorder.has_capacity()
        bench.advance(1.0)
        assert bench.recorder.has_capacity()
        for number in range(150, 200):
            bench.record(about=other(number))
    assert len(bench.created) == 55


def test_a_follower_sends_no_events() -> None:
    bench = Recording()
    bench.leading = False
    with bench.writing():
        bench.record()
    assert bench.api.calls == []


def test_a_long_message_is_cut() -> None:
    bench = Recording()
    with bench.writing():
        bench.record("x" * 5000)
    assert len(bench.created[0]["message"]) == 1024


def test_a_recorder_needs_no_clock_of_a_test() -> None:
    bench = Recording()
    with bench.writing():
        EventRecorder(bench.api, bench.writers, bench.leads).record(POD, NORMAL, "Starting", "m")
        bench.flush()
    assert len(bench.created) == 1
