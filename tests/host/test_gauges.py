"""Metrics that are collected at intervals, and the warning about a scheduler that never calls."""

from threading import Event
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from extender.domain.model.reasons import Reason
from extender.domain.model.records import Uid
from extender.domain.snapshot.decisions import QueueDecision
from extender.host.upkeep import Gauges
from extender.kube.reflector import Reflector, Sink
from extender.kube.resources import FOREIGN_GROUPS
from extender.telemetry import metrics
from tests.controllers.bench import Bench
from tests.domain.builders import node, pod, queue
from tests.domain.world import gang, key
from tests.host.conftest import FeedBench
from tests.property_examples import examples

SILENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def never_called(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Replace the record of the first call: other tests of this process may have made calls."""
    event = Event()
    monkeypatch.setattr(metrics, "first_call", event)
    return event


class Watch:
    """Gauges over a bench, and the warnings that they log."""

    def __init__(self, bench: FeedBench, *objects: Any) -> None:
        self.bench = Bench(*objects)
        self.gauges = Gauges(bench.feed, [self.bench.writers], self.bench.ledger, lambda: self.bench.now)

    def warnings(self, after: float = 0.0) -> int:
        self.bench.advance(after)
        with capture_logs() as logs:
            self.gauges.update(self.bench.ledger.decisions)
        return len([line for line in logs if line["event"].startswith("the scheduler has never called")])


def metric_value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_scheduler_that_never_calls_is_logged_repeatedly(bench: FeedBench) -> None:
    watch = Watch(bench, node("a"), pod("p", gated=False))
    assert watch.warnings() == 0
    assert watch.warnings(after=SILENCE_SECONDS) == 0
    assert watch.warnings(after=0.1) == 1
    assert watch.warnings(after=SILENCE_SECONDS) == 0
    assert watch.warnings(after=0.1) == 1


def test_a_scheduler_that_called_is_not_logged(bench: FeedBench, never_called: Event) -> None:
    watch = Watch(bench, node("a"), pod("p", gated=False))
    watch.warnings()
    never_called.set()
    assert watch.warnings(after=2 * SILENCE_SECONDS) == 0


@pytest.mark.parametrize("waiting", [pod("p"), pod("p", cpu="5", gated=False)])
def test_no_call_is_expected_for_gated_pods_and_pods_without_a_plan(bench: FeedBench, waiting: Any) -> None:
    watch = Watch(bench, node("a"), waiting)
    watch.warnings()
    assert watch.warnings(after=2 * SILENCE_SECONDS) == 0


def test_the_time_to_the_warning_starts_again_with_each_wait(bench: FeedBench) -> None:
    watch = Watch(bench, node("a"), pod("p", gated=False))
    watch.warnings()
    watch.bench.delete("p").settle()
    watch.warnings(after=SILENCE_SECONDS)
    watch.bench.add(pod("q", gated=False)).settle()
    assert watch.warnings(after=SILENCE_SECONDS) == 0
    assert watch.warnings(after=SILENCE_SECONDS) == 0
    assert watch.warnings(after=0.1) == 1


def test_writes_are_counted_once(bench: FeedBench) -> None:
    watch = Watch(bench)
    before = metric_value("muster_writes_total", outcome="done")
    with watch.bench.writing():
        watch.bench.flush()
        watch.gauges.update(watch.bench.ledger.decisions)
        watch.gauges.update(watch.bench.ledger.decisions)
    assert (
        metric_value("muster_writes_total", outcome="done") - before
        == watch.bench.writers.outcome_counts["done"]
        == 2
    )


def test_the_queue_of_writes_and_the_state_of_the_caches_are_shown(bench: FeedBench) -> None:
    watch = Watch(bench)
    watch.bench.writers.submit("a", lambda: None)
    watch.gauges.update(watch.bench.ledger.decisions)
    assert metric_value("muster_write_queue_depth") == 1
    assert metric_value("muster_cache_synced", resource="pods") == 0
    bench.api.objects["pods"] = [pod("p")]
    bench.feed.start()
    bench.wait_for(lambda: bench.ledger.pods.get(Uid("uid-p")) is not None)
    bench.api.send("pods", "ADDED", pod("q"))
    bench.wait_for(lambda: bench.ledger.pods.get(Uid("uid-q")) is not None)
    watch.gauges.update(watch.bench.ledger.decisions)
    assert metric_value("muster_cache_synced", resource="pods") == 1


def test_watches_of_one_name_are_shown_together(bench: FeedBench) -> None:
    """Volcano's PodGroups and Kubernetes' own."""
    watch, none = Watch(bench), cast(Sink[Any], None)
    two = [Reflector[Any](bench.connection, *kind, none) for kind in FOREIGN_GROUPS[:2]]
    bench.feed.optional_watches.started_watches.extend(two)
    assert {each.resource.plural for each in two} == {"podgroups"}
    before = metric_value("muster_relists_total", resource="podgroups")
    two[0].relist_count, two[1].relist_count, two[0].last_contact_at, two[1].last_contact_at = 5, 2, 7.0, 4.0
    watch.bench.now = 10.0
    for _ in range(2):
        watch.gauges.update(watch.bench.ledger.decisions)
    assert metric_value("muster_relists_total", resource="podgroups") - before == 7
    assert metric_value("muster_cache_age_seconds", resource="podgroups") == 6


def test_groups_are_counted_by_verdict_as_they_change(bench: FeedBench) -> None:
    """Count a group that changes twice between two looks, and drop a deleted group."""
    watch = Watch(bench, node("a", cpu="2"), gang("g", 2), gang("h", 2), gang("i", 2))

    def counted() -> dict[str, float]:
        watch.gauges.update(watch.bench.ledger.decisions)
        labels = {"Starting": "", "Running": "", "Waiting": Reason.NO_ROOM}
        return {
            verdict: metric_value("muster_groups", verdict=verdict, reason=reason)
            for verdict, reason in labels.items()
        }

    assert counted() == {"Starting": 1, "Running": 0, "Waiting": 2}
    watch.bench.start("g")
    assert counted() == counted() == {"Starting": 0, "Running": 1, "Waiting": 2}
    watch.bench.delete("g-0", "g-1", "i-0", "i-1")
    for name in ("g", "i"):
        watch.bench.ledger.intake.drop_group(key(name))
    watch.bench.settle()
    assert counted() == {"Starting": 1, "Running": 0, "Waiting": 0}


def test_queues_are_counted_by_state(bench: FeedBench) -> None:
    watch = Watch(bench, queue("q"), queue("r", spec_state="Closed"), queue("root"))
    watch.gauges.update(watch.bench.ledger.decisions)
    counts = {
        state: metric_value("muster_queues", state=state)
        for state in ("Open", "Closing", "Closed", "Unknown")
    }
    assert counts == {"Open": 3, "Closing": 0, "Closed": 1, "Unknown": 0}  # `default` is always there


def test_queues_are_shown_by_name_until_they_are_gone(bench: FeedBench) -> None:
    watch = Watch(bench, queue("q", weight=2), node("a"), gang("g", 2, queue="q", cpu="1500m"))
    watch.gauges.update(watch.bench.ledger.decisions)
    assert metric_value("muster_queue_deserved", queue="q", resource="cpu") == 3
    assert metric_value("muster_queue_allocated", queue="q", resource="cpu") == 0
    assert metric_value("muster_queue_groups", queue="q", column="inqueue") == 1
    metrics.labelled_by_queue(metrics.queue_evictions, "q", "Reclaim").inc()
    watch.gauges.update(watch.bench.ledger.decisions)
    assert metric_value("muster_queue_evictions_total", queue="q", cause="Reclaim") == 1
    watch.bench.ledger.intake.drop_queue("q")
    watch.bench.settle()
    watch.gauges.update(watch.bench.ledger.decisions)
    gone = {"queue": "q", "cause": "Reclaim"}
    assert REGISTRY.get_sample_value("muster_queue_evictions_total", gone) is None
    assert REGISTRY.get_sample_value("muster_queue_share", {"queue": "q"}) is None
    assert REGISTRY.get_sample_value("muster_queue_deserved", {"queue": "q", "resource": "cpu"}) is None


GAUGES = (metrics.queue_share, metrics.queue_deserved, metrics.queue_allocated, metrics.queue_groups)
amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 2**63))
decisions = st.builds(
    lambda name, deserved, allocated, share: QueueDecision(
        name, "Open", 1, "", allocated, {}, deserved, {}, share, counts={"running": len(allocated)}
    ),
    st.sampled_from("abc"),
    amounts,
    amounts,
    st.floats(0, 9),
)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.lists(decisions, max_size=3, unique_by=lambda each: each.name), max_size=5))
def test_updated_metrics_of_queues_equal_recomputed_ones(cycles: list[list[QueueDecision]]) -> None:
    def numbers(queues: list[QueueDecision]) -> dict[tuple[str, ...], float]:
        metrics.show_queues(queues)
        samples = [each for gauge in GAUGES for metric in gauge.collect() for each in metric.samples]
        return {(each.name, *each.labels.values()): each.value for each in samples}

    for queues in cycles:
        shown = numbers(queues)
        assert numbers([]) == {}
        assert numbers(queues) == shown
        numbers(queues[1:])


def test_queues_beyond_the_limit_have_no_metrics(bench: FeedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_QUEUES", 1)
    watch = Watch(bench, queue("b"), queue("c"))
    watch.gauges.update(watch.bench.ledger.decisions)
    assert REGISTRY.get_sample_value("muster_queue_share", {"queue": "b"}) == 0
    assert REGISTRY.get_sample_value("muster_queue_share", {"queue": "c"}) is None
