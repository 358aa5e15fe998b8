"""The debug pages: everything that the ledger and the barrier know, in a form that can be sent."""

import gzip
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from werkzeug.exceptions import BadRequest, ServiceUnavailable

from extender import __version__
from extender.api.configuration import Configuration, as_document
from extender.api.objects.queues import QueueReclaimed, QueueStatus
from extender.api.summaries import VERSION
from extender.api.units import timestamp_at
from extender.controllers.cycle import DecisionLog
from extender.controllers.estimates import Estimates
from extender.controllers.events import StartChanges
from extender.controllers.history import History
from extender.dashboard import what_if_page
from extender.dashboard.overviews import DecisionSource
from extender.domain.explain.dump import as_bytes, dump, read_dump
from extender.domain.explain.what_if import what_if
from extender.domain.model.reasons import Reason
from extender.domain.snapshot.decisions import Decisions
from extender.host import debug_pages
from extender.host.dashboard import Dashboard, decision_source, what_if_source
from extender.host.debug_pages import Views
from extender.web.debug import ENDPOINTS
from tests.domain.builders import foreign_pod, node, pod, queue
from tests.domain.test_local_queues import labelled, local
from tests.domain.world import gang, nodes
from tests.e2e.harness.waiting import wait_for
from tests.host.conftest import FeedBench
from tests.verbs.stage import Stage

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "podgroup": ("team", "g"),
    "why": ("team", "g"),
    "pod": ("team", "g-0"),
    "decisions": (100,),
    "history": ("user", "2h", ""),
}


class Screen:
    """Views over a stage."""

    def __init__(self, bench: FeedBench, *objects: Any) -> None:
        self.stage = Stage(*objects)
        self.decision_log = DecisionLog()
        self.decision_log.on_decisions(self.stage.decisions)
        estimates = Estimates(self.stage.ledger, lambda: True)
        views = Views(
            self.stage.ledger,
            self.stage.barrier,
            bench.feed,
            self.decision_log,
            Configuration(),
            estimates,
            bench.quota_queues,
            decision_source(
                self.stage.ledger, self.decision_log.latest, estimates, StartChanges(), lambda: True
            ),
            History(self.stage.ledger, lambda: True, None, 0.0),
            what_if_source(self.stage.ledger),
        )
        self.table = views.table()

    def show(self, name: str, *arguments: Any) -> Any:
        """Return a page as its reader gets it."""
        page = self.table[name](*arguments)
        return page if isinstance(page, bytes) else msgspec.json.decode(msgspec.json.encode(page))


Screens = Callable[..., Screen]


@pytest.fixture
def screen(bench: FeedBench) -> Screens:
    return lambda *objects: Screen(bench, *objects)


def test_each_debug_page_can_be_sent_as_json(screen: Screens) -> None:
    shown = screen(node("a"), queue("q"), gang("g", 2), gang("h", 9), foreign_pod("s", on="a"))
    for name in shown.table:
        assert shown.show(name, *ARGUMENTS.get(name, ())) not in (None, "")


def test_every_debug_page_has_data(screen: Screens) -> None:
    elsewhere = {"version", "threads", "leadership", "view"}  # of the router, and of what may not run
    assert {endpoint.view for endpoint in ENDPOINTS} - elsewhere == screen(node("a")).table.keys()


def test_the_overview_is_the_read_model(screen: Screens) -> None:
    seen = screen(node("a"), queue("q"), gang("g", 2, queue="q"), gang("h", 9, queue="q")).show("overview")
    assert (seen["apiVersion"], seen["by"]) == (VERSION, "muster")
    assert [(group["name"], group["verdict"]) for group in seen["groups"]] == [
        ("g", "Starting"),
        ("h", "Waiting"),
    ]
    assert {decision["group"] for decision in seen["decisions"]} == {"team/g", "team/h"}


def test_history_covers_a_period_and_is_computed_one_request_at_a_time(screen: Screens) -> None:
    shown = screen(node("a"), gang("g", 2))
    assert shown.show("history", "", "", "")["by"] == "queue"
    with pytest.raises(BadRequest, match="since: invalid value 'soon': "):
        shown.show("history", "user", "soon", "")
    with debug_pages._REPORT_LOCK, pytest.raises(ServiceUnavailable):
        shown.show("history", "", "", "")


def test_a_local_queue_shows_its_queue_and_its_groups(screen: Screens) -> None:
    shown = screen(node("a"), queue("q"), local(), labelled("g", 9), labelled("h"))
    (seen,) = shown.show("localqueues")
    assert (seen["localQueue"], seen["queue"], seen["activity"]["reason"]) == ("team/lq", "q", "Ready")
    assert (seen["waiting"], seen["admitted"]) == (1, 1)


def test_a_queue_shows_its_numbers_and_state(screen: Screens) -> None:
    shown = screen(node("a"), queue("q", weight=3, spec_state="Closed"), gang("g", 2))
    default, other = shown.show("queues")
    assert (default["name"], default["state"], default["requested"]["cpu"]) == ("default", "Open", 2000)
    assert (other["name"], other["state"], other["weight"]) == ("q", "Closed", 3)


def test_a_queue_shows_from_which_queues_it_reclaimed(screen: Screens) -> None:
    taken = QueueReclaimed("rich", "team/x", timestamp_at(time.time()), 2)
    shown = screen(node("a"), replace(queue("q"), status=QueueStatus(reclaimed=[taken])), gang("g", 2))
    found = next(each for each in shown.show("queues") if each["name"] == "q")
    assert found["reclaimed"] == [msgspec.to_builtins(taken)]


def test_a_group_that_waits_shows_its_reason_and_members(screen: Screens) -> None:
    shown = screen(node("a"), gang("g", 5))
    (listed,) = shown.show("podgroups")
    assert (listed["podGroup"], listed["verdict"], listed["reason"]) == (
        "team/g",
        "Waiting",
        Reason.NEVER_FITS,
    )
    whole = shown.show("podgroup", "team", "g")
    assert whole["detail"] == listed["detail"] == shown.stage.detail("g")
    assert [each["pod"] for each in whole["members"]] == [f"team/g-{n}" for n in range(5)]
    assert whole["pending"]["cpu"] == 5000


def test_the_reason_of_a_wait_names_the_holders_and_the_smallest_change(screen: Screens) -> None:
    shown = screen(node("a", cpu="4"), foreign_pod("s", on="a", cpu="3"), gang("g", 2)).show(
        "why", "team", "g"
    )
    assert shown["holders"] == [{"name": "team/s", "pods": 1, "amounts": {"cpu": 3000}, "uid": "uid-s"}]
    assert shown["change"]["ends"] == ["team/s"]
    assert (shown["reason"], shown["position"], shown["waiting"]) == ("NoRoom", 1, 1)


def test_a_supposition_shows_the_changed_decisions(screen: Screens) -> None:
    shown = screen(node("a", cpu="4"), foreign_pod("s", on="a", cpu="3"), gang("g", 2))
    found = shown.show("why", "team", "g", ["nodes=+1", "queue.weight=default:2"])
    assert found["terms"] == ["nodes=+1", "queue.weight=default:2"]
    assert (found["group"]["group"], found["group"]["change"]) == ("team/g", "starts")
    assert shown.table["why"]("team", "x", ["nodes=+1"]) is None
    with pytest.raises(BadRequest, match="what-if: 'nodes=2': must be"):
        shown.show("why", "team", "g", ["nodes=2"])
    assert shown.stage.reason("g") is Reason.NO_ROOM


def test_one_supposition_is_computed_at_a_time(screen: Screens, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, begun, go_on = screen(node("a"), gang("g", 2)), Event(), Event()

    def slowly(*known: Any) -> Any:
        begun.set()
        go_on.wait(30)
        return what_if(*known)

    monkeypatch.setattr(what_if_page, "what_if", slowly)
    with ThreadPoolExecutor(1) as others:
        first = others.submit(shown.show, "why", "team", "g", ["nodes=+1"])
        assert begun.wait(30)
        with pytest.raises(ServiceUnavailable, match="Another what-if"):
            shown.show("why", "team", "g", ["nodes=+1"])
        go_on.set()
        assert first.result(30)["terms"] == ["nodes=+1"]
    assert shown.show("why", "team", "g", ["nodes=+2"])["terms"] == ["nodes=+2"]


def test_a_starting_group_shows_its_plan_and_assumed_pods(screen: Screens) -> None:
    shown = screen(nodes("a", "b", cpu="1"), gang("g", 2))
    whole = shown.show("podgroup", "team", "g")
    assert whole["plan"] == {f"uid-{name}": node for name, node in shown.stage.plan("g").items()}
    assert {each["claim"]["stage"] for each in whole["members"]} == {"PLANNED"}


def test_a_node_shows_its_free_capacity_and_assumed_pods(screen: Screens) -> None:
    shown = screen(node("a"), foreign_pod("s", on="a"), gang("g", 2))
    (seen,) = shown.show("nodes")
    assert (seen["allocatable"]["cpu"], seen["idle"]["cpu"]) == (4000, 1000)
    assert {each["pod"]: each["stage"] for each in seen["claims"]} == {
        "team/s": "BOUND",
        "team/g-0": "PLANNED",
        "team/g-1": "PLANNED",
    }


def test_a_pod_shows_its_group_and_decision(screen: Screens) -> None:
    shown = screen(node("a"), gang("g", 5), foreign_pod("s"))
    ours, strange = shown.show("pod", "team", "g-0"), shown.show("pod", "team", "s")
    assert (ours["ours"], ours["podGroup"], ours["gated"]) == (True, "team/g", True)
    assert ours["decision"]["reason"] == Reason.NEVER_FITS
    assert (strange["ours"], strange["decision"]) == (False, None)


@pytest.mark.parametrize("view", ["pod", "podgroup"])
def test_an_unknown_object_is_not_found(screen: Screens, view: str) -> None:
    assert screen().show(view, "team", "nobody") is None


def test_held_calls_are_shown_with_their_pod_and_node(screen: Screens) -> None:
    shown = screen(nodes("a", "b", cpu="1"), gang("g", 2), pod("p"))
    with shown.stage.calls() as stage:
        stage.held_call("g-0")
        (held,) = shown.show("held")
        claim = stage.claim("g-0")
        assert claim is not None
        assert (held["pod"], held["podGroup"], held["node"]) == ("team/g-0", "team/g", claim.node)
        assert held["posting"] is False


def test_the_latest_decisions_are_listed_first(screen: Screens) -> None:
    shown = screen(node("a"), gang("g", 5))
    shown.stage.add(node("b")).settle()
    shown.decision_log.on_decisions(shown.stage.decisions)
    assert [each["verdict"] for each in shown.show("decisions", 100)] == ["Starting", "Waiting"]
    assert [each["verdict"] for each in shown.show("decisions", 1)] == ["Starting"]


def test_kinds_that_the_cluster_does_not_have_are_shown(screen: Screens) -> None:
    watches = screen().show("watches")
    assert watches["/apis/bus.volcano.sh/v1alpha1/commands"]["known"] is False
    assert watches["/api/v1/pods"]["known"] is True


def test_a_dump_has_the_newest_decisions(screen: Screens) -> None:
    shown = screen(node("a"), queue("q"), gang("g", 2), gang("h", 9))
    found = read_dump(gzip.decompress(shown.show("dump")), __version__)
    assert as_bytes(found.decisions) == as_bytes(shown.stage.decisions)
    assert found.file.configuration == as_document(Configuration())


def test_one_dump_is_made_at_a_time(screen: Screens, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(node("a"), gang("g", 2))
    begun, may_end = Event(), Event()

    def slowly(decisions: Decisions, *known: Any) -> bytes | None:
        begun.set()
        assert may_end.wait(10.0)
        return dump(decisions, *known)

    monkeypatch.setattr(debug_pages, "dump", slowly)
    with ThreadPoolExecutor() as others:
        first = others.submit(shown.show, "dump")
        assert begun.wait(10.0)
        with pytest.raises(ServiceUnavailable, match="Another dump"):
            shown.show("dump")
        may_end.set()
        assert first.result()
    assert shown.show("dump")


def test_nothing_is_dumped_before_anything_is_decided(screen: Screens) -> None:
    shown = screen(node("a"))
    shown.stage.ledger.decisions = Decisions()
    with pytest.raises(ServiceUnavailable, match="Nothing is decided"):
        shown.show("dump")


def test_a_dashboard_knows_the_shares_of_queues_from_its_start_on(bench: FeedBench) -> None:
    stage = Stage(node("a"), queue("q"))
    listener = socket.create_server(("127.0.0.1", 0))
    source = DecisionSource(lambda: stage.decisions, list)
    past = History(stage.ledger, lambda: True, None, 0.0).report
    tries = what_if_source(stage.ledger)
    dashboard = Dashboard(Configuration(), bench.connection, listener, source, past, tries)
    dashboard.start()
    wait_for(lambda: source.shares.samples_of("q", time.time()))
    dashboard.stop()
