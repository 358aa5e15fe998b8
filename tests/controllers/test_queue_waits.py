"""The seconds that groups of a queue waited."""

from prometheus_client import REGISTRY

from extender.controllers.cycle import QueueWaits
from extender.domain.model.records import GroupKey
from extender.telemetry import metrics
from tests.controllers.bench import Bench
from tests.domain.builders import node, queue
from tests.domain.world import gang


def waited(queue: str) -> tuple[float, float]:
    """Return the number of groups of a queue that started after a wait, and the total of their waits."""
    count, total = (
        REGISTRY.get_sample_value(f"muster_queue_waited_seconds_{part}", {"queue": queue})
        for part in ("count", "sum")
    )
    return count or 0.0, total or 0.0


def test_a_wait_ends_with_the_start_and_is_counted_in_its_bucket_until_its_queue_is_gone() -> None:
    bench = Bench(queue("lab"), gang("a", 2, queue="lab"))
    waits = QueueWaits(lambda: bench.now)
    waits.on_decisions(bench.ledger.decisions)
    bench.advance(30)
    bench.add(node("n"))
    bench.settle()
    waits.on_decisions(bench.ledger.decisions)
    assert waited("lab") == (1, 30)
    assert [in_bucket("lab", most) for most in ("15.0", "60.0")] == [0, 1]
    metrics.show_queues([])
    assert in_bucket("lab", "60.0") is None


def test_a_group_that_is_deleted_while_it_waits_is_forgotten() -> None:
    bench = Bench(queue("desk"), gang("a", 1, queue="desk"))
    waits = QueueWaits(lambda: bench.now)
    waits.on_decisions(bench.ledger.decisions)
    bench.delete("a-0")
    bench.ledger.intake.drop_group(GroupKey("team/a"))
    bench.settle()
    waits.on_decisions(bench.ledger.decisions)
    assert waits._wait_starts == {}
    assert waited("desk") == (0, 0)


def in_bucket(queue: str, most: str) -> float | None:
    return REGISTRY.get_sample_value("muster_queue_waited_seconds_bucket", {"queue": queue, "le": most})
