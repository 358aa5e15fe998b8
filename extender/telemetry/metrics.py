"""Metrics for Prometheus.

Labels have few values, which are known beforehand: verbs, outcomes, codes of reasons, kinds of objects, and
up to MAX_QUEUES queues. Names of pods, groups or nodes are never labels.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from operator import attrgetter
from platform import python_version
from threading import Event
from time import perf_counter
from typing import Any, TypeVar

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from extender import __version__
from extender.domain.model.resources import CPU
from extender.domain.snapshot.decisions import QueueDecision

MAX_QUEUES = 1000  # most queues that are labels: the first queues by name

_SHORT_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
_LONG_BOUNDS = (1, 2.5, 5, 10, 30, 60, 120, 300)

verb_seconds = Histogram(
    "muster_verb_seconds",
    "Time to answer the scheduler; bind includes the wait for the gang.",
    ["verb"],
    buckets=(*_SHORT_BOUNDS, *_LONG_BOUNDS),
)
verb_calls = Counter("muster_verb_calls_total", "Calls of the scheduler.", ["verb", "outcome", "reason"])
last_verb_call = Gauge("muster_last_verb_call_timestamp_seconds", "When the scheduler last called; 0 before.")
scheduler_never_called = Gauge("muster_scheduler_never_called", "1 until the scheduler's first call.")
scheduler_never_called.set(1)

first_call = Event()  # set once the scheduler has called any verb
held_binds = Gauge("muster_held_binds", "Bind calls that wait for their gang.")
bindings = Counter("muster_bindings_total", "Bindings posted to the API server.", ["outcome"])
barrier_releases = Counter("muster_barrier_releases_total", "Gangs whose bind calls were released.")
barrier_aborts = Counter("muster_barrier_aborts_total", "Starts that were given up.", ["reason"])

decision_seconds = Histogram(
    "muster_decision_seconds", "Time of one decision.", buckets=(*_SHORT_BOUNDS, 1, 2.5, 5)
)
decisions = Counter("muster_decisions_total", "Decisions made.")
decision_flips = Counter(
    "muster_decision_flips_total",
    "Changes of groups back to their former verdict and reason without an event.",
)
groups = Gauge("muster_groups", "Groups by verdict and reason.", ["verdict", "reason"])
gates_opened = Counter("muster_gates_opened_total", "Gates removed from pods.")
pod_conditions = Counter("muster_pod_conditions_total", "Conditions PodScheduled written.", ["reason"])
evictions = Counter("muster_evictions_total", "Eviction requests.", ["outcome", "cause"])

queues = Gauge("muster_queues", "Queues by state.", ["state"])
queue_deserved = Gauge("muster_queue_deserved", "Deserved cores, bytes, devices.", ["queue", "resource"])
queue_allocated = Gauge(
    "muster_queue_allocated", "Cores, bytes, devices that pods hold.", ["queue", "resource"]
)
queue_share = Gauge("muster_queue_share", "Held divided by deserved, in the dominant resource.", ["queue"])
queue_groups = Gauge("muster_queue_groups", "Groups by column of the status.", ["queue", "column"])
queue_waited = Histogram(
    "muster_queue_waited_seconds",
    "Time that groups waited until they started.",
    ["queue"],
    buckets=(1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600),
)
estimate_error = Histogram(
    "muster_estimate_error",
    "Wait after the first estimate, divided by the estimated wait.",
    ["interval"],
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.33, 2, 4, 10),
)
queue_evictions = Counter("muster_queue_evictions_total", "Pods that were evicted.", ["queue", "cause"])
queue_commands = Counter("muster_queue_commands_total", "Commands to open or close a queue.", ["outcome"])
groups_cleared = Counter("muster_groups_cleared_total", "Groups deleted with their queue.")

build_info = Gauge("muster_build_info", "1; the labels say what runs.", ["version", "python"])
build_info.labels(__version__, python_version()).set(1)
certificate_expiry = Gauge(
    "muster_certificate_expiry_timestamp_seconds", "When a port's certificate expires.", ["port"]
)

cache_age = Gauge("muster_cache_age_seconds", "Time since the watch was last alive.", ["resource"])
cache_synced = Gauge("muster_cache_synced", "1 once the resource has been read.", ["resource"])
relists = Counter("muster_relists_total", "Lists after the first.", ["resource"])
bad_objects = Counter("muster_bad_objects_total", "Objects that could not be read.", ["resource"])
writes = Counter("muster_writes_total", "Writes to the API server, except bindings.", ["outcome"])
write_queue_depth = Gauge("muster_write_queue_depth", "Writes that wait for a thread.")
work_queue_depth = Gauge("muster_work_queue_depth", "Objects yet to reconcile.", ["part"])
events = Counter("muster_events_total", "Kubernetes events.", ["outcome"])
faults = Counter("muster_faults_total", "Exceptions that one object caused.", ["part"])
leader = Gauge("muster_leader", "1 while this replica leads.")
leader_turns = Counter("muster_leader_transitions_total", "Times that this replica began or stopped leading.")
lease_age = Gauge("muster_lease_age_seconds", "Time since the Lease was renewed.")
review_seconds = Histogram("muster_review_seconds", "Time to answer an admission review.", ["path"])
reviews = Counter("muster_reviews_total", "Admission reviews.", ["path", "outcome"])
connections_dropped = Counter(
    "muster_connections_dropped_total",
    "Connections that were closed: too many or too slow.",
    ["port", "reason"],
)

view_connections = Gauge("muster_view_connections", "Connections to the scheduler proxy.")
view_streams = Gauge("muster_view_streams", "Watches through the scheduler proxy.")
view_requests = Counter("muster_view_requests_total", "Requests to the scheduler proxy.", ["outcome"])
view_unreadable_pods = Counter(
    "muster_view_unreadable_pods_total", "Unreadable pods that the scheduler proxy passed on."
)
view_readers = Gauge("muster_view_pod_watches", "Watches of pods through the scheduler proxy.")
view_since_event = Gauge("muster_view_silence_seconds", "Longest time without an event on a watch of pods.")
view_bypasses = Counter("muster_view_detours_total", "Calls about pods that the proxy has not shown.")
view_dials = Counter("muster_view_dials_total", "Connections opened to the API server.")


_MILLI = 1000  # decisions have CPU amounts in millicores
Metric = TypeVar("Metric", Counter, Histogram)
Child = tuple[Any, tuple[str, ...]]  # a metric, and the labels of a number in the metric


class Call:
    """Call of a verb, or review. It is recorded once it is answered."""

    def __init__(self) -> None:
        self.outcome = "ok"
        self.reason = ""


_call: ContextVar[Call | None] = ContextVar("verb call", default=None)
_seconds_of = cache(verb_seconds.labels)  # `labels` itself takes a lock on every call
_calls_of = cache(verb_calls.labels)


@contextmanager
def count_call(verb: str) -> Iterator[Call]:
    """Time and count a call of `verb`.

    The block may set the outcome of the call, and, by `record_refusal`, a reason.
    """
    last_verb_call.set_to_current_time()
    if not first_call.is_set():
        scheduler_never_called.set(0)
        first_call.set()
    call, started = Call(), perf_counter()
    token = _call.set(call)
    try:
        yield call
    finally:
        _call.reset(token)
        _seconds_of(verb).observe(perf_counter() - started)
        _calls_of(verb, call.outcome, call.reason).inc()


@contextmanager
def count_review(path: str) -> Iterator[Call]:
    """Time and count an admission review."""
    call, started = Call(), perf_counter()
    try:
        yield call
    finally:
        review_seconds.labels(path).observe(perf_counter() - started)
        reviews.labels(path, call.outcome).inc()


def record_refusal(reason: str = "") -> None:
    """Record that the current call is refused. `reason` is a code of a fixed list, or empty."""
    if call := _call.get():
        call.outcome, call.reason = "refused", reason


def show_groups(counts: Mapping[tuple[str, str], int]) -> None:
    """Set the numbers of groups by verdict and reason.

    If a shown pair of verdict and reason has no count, its number becomes zero. The pair is not removed.
    """
    for metric in groups.collect():
        for sample in metric.samples:
            labels = sample.labels["verdict"], sample.labels["reason"]
            if labels not in counts:
                groups.labels(*labels).set(0)
    for (verdict, reason), count in counts.items():
        groups.labels(verdict, reason).set(count)


_queue_children: dict[Child, None] = {}
_shown_queues: dict[str, tuple[QueueDecision, Mapping[Child, float]]] = {}  # shown queues with their numbers


def labelled_by_queue(metric: Metric, queue: str, *labels: str) -> Metric:
    """Return the child of a metric for a queue. `show_queues` removes the child when the queue is gone."""
    _queue_children[metric, (queue, *labels)] = None
    return metric.labels(queue, *labels)


def show_queues(queues: Iterable[QueueDecision]) -> None:
    """Show the numbers of these queues, in cores, bytes and devices, and remove all other queues.

    Only numbers that have changed since the last call are set, because a thousand queues have twenty thousand
    numbers.
    """
    new_queues = {queue.name: queue for queue in sorted(queues, key=attrgetter("name"))[:MAX_QUEUES]}
    for name, queue in new_queues.items():
        last_queue, last_values = _shown_queues.get(name, (None, {}))
        if queue is last_queue:
            continue
        values = {(metric, (name, *labels)): value for metric, labels, value in _numbers_of(queue)}
        for (metric, labels), value in values.items():
            if last_values.get((metric, labels)) != value:
                metric.labels(*labels).set(value)
        _remove(last_values.keys() - values.keys())
        _shown_queues[name] = queue, values
    for name in _shown_queues.keys() - new_queues.keys():
        _remove(_shown_queues.pop(name)[1])
    outdated = [(metric, labels) for metric, labels in list(_queue_children) if labels[0] not in new_queues]
    _remove(outdated)
    for child in outdated:
        _queue_children.pop(child, None)


def _numbers_of(queue: QueueDecision) -> Iterator[tuple[Gauge, tuple[str, ...], float]]:
    """Yield the numbers of a queue, with their metrics and further labels."""
    yield queue_share, (), queue.share
    for gauge, amounts in ((queue_deserved, queue.deserved), (queue_allocated, queue.allocated)):
        for resource, amount in amounts.items():
            yield gauge, (resource,), amount / _MILLI if resource == CPU else amount
    for column, count in queue.counts.items():
        yield queue_groups, (column,), count


def _remove(children: Iterable[tuple[MetricWrapperBase, tuple[str, ...]]]) -> None:
    for metric, labels in children:
        metric.remove(*labels)
