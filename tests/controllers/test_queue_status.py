"""Statuses of queues: written on change, paced, marks before states, and only on the newest copy."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api import keys
from extender.api.objects.queues import Queue, QueueFlavorStatus
from extender.controllers.objects import ObjectStore, QueueCopy
from extender.controllers.queue_status import QueueStatusController
from extender.domain.snapshot.snapshot import Limits
from tests.controllers.queue_bench import QueueBench
from tests.domain.builders import NAMESPACE, flavor, node, on_flavor, queue
from tests.domain.world import LIMITS, gang


class QueueStatusBench(QueueBench):
    def __init__(self, *objects: Any, limits: Limits | None = None) -> None:
        super().__init__(node("a", cpu="4"), *objects, limits=limits)
        self.copies: ObjectStore[str, QueueCopy] = ObjectStore()
        self.reporter = QueueStatusController(self.means(self.store), self.recorder, self.copies)

    def follow(self, queue: Queue) -> None:
        self.copies.put(queue.metadata.name, QueueCopy(queue, self.ledger.version))

    def look(self, seconds: float = 2.0) -> list[Any]:
        """Return the calls of one look, after that much time; the watch shows their changes."""
        self.now += seconds
        self.store.calls = []
        self.reporter.on_decisions(self.settle().decisions)
        self.flush()
        self.show_all()
        self.settle()
        return [call[:2] for call in self.store.calls]

    def rest(self) -> None:
        """Look until nothing is left to write."""
        for _ in range(10):
            if not self.look():
                return
        raise AssertionError("writes without end")

    def status(self, name: str = "q") -> Any:
        return self.copy(name).status

    def conditions(self, name: str = "q") -> dict[str, tuple[str, str]]:
        return {
            condition.type: (condition.status, condition.reason) for condition in self.status(name).conditions
        }

    def message(self, type_: str) -> str:
        return next(str(each.message) for each in self.status().conditions if each.type == type_)


@pytest.fixture
def bench() -> Iterator[QueueStatusBench]:
    new_bench = QueueStatusBench(gang("g", 2, queue="q"))
    with new_bench.writing():
        new_bench.put_queues(queue("q"))
        yield new_bench


def test_a_new_queue_gets_its_whole_status_in_one_write(bench: QueueStatusBench) -> None:
    assert bench.look() == [("state", "q"), ("status", "q")]
    status = bench.status()
    assert (status.state, status.inqueue, status.pending, status.share) == ("Open", 1, 0, 1.0)
    assert bench.conditions() == {"Open": ("True", "Open"), "Valid": ("True", "Valid")}


def test_an_equal_queue_status_is_not_written(bench: QueueStatusBench) -> None:
    bench.look()
    assert bench.look() == []
    bench.leading = False
    bench.look()
    bench.leading = True
    assert bench.look() == []


def test_a_change_waits_for_a_second_and_only_changed_fields_are_sent(bench: QueueStatusBench) -> None:
    bench.look()
    bench.edit("q", state="Closed")
    assert bench.look(seconds=0.5) == []
    assert bench.look(seconds=0.6) == [("state", "q"), ("status", "q")]
    assert (bench.status().state, bench.conditions()["Open"]) == ("Closing", ("False", "Closed"))
    (sent,) = bench.store.done("status")
    assert {*sent[1]} == {"conditions"}
    bench.ledger.intake.drop_group(bench.decision("g").key)
    bench.delete("g-0", "g-1")
    bench.look()
    assert bench.status().state == "Closed"


def test_amounts_that_are_no_longer_held_are_removed(bench: QueueStatusBench) -> None:
    bench.look()
    assert bench.status().deserved["cpu"] == "2"
    bench.ledger.intake.drop_group(bench.decision("g").key)
    bench.delete("g-0", "g-1")
    bench.look()
    assert bench.status().deserved == {}


def test_the_recent_usage_is_written() -> None:
    new_bench = QueueStatusBench(gang("g", 2, queue="q"), limits=replace(LIMITS, usage_half_life=100.0))
    with new_bench.writing():
        new_bench.put_queues(queue("q"))
        new_bench.start("g").pass_time(100.0)
        new_bench.look()
        usage = new_bench.status().usage
        assert usage is not None
        assert [each.name for each in usage.namespaces] == [NAMESPACE]
        assert usage.share == usage.namespaces[0].share > 0.1


def test_a_change_of_state_is_logged_and_makes_an_event(bench: QueueStatusBench) -> None:
    with capture_logs() as logs:
        bench.rest()
        bench.edit("q", state="Closed")
        bench.rest()
    assert [log["now"] for log in logs if "before" in log] == ["Open", "Closing"]
    ((name, reason, condition),) = bench.events()
    assert (name, reason) == ("q", "QueueClosing")
    assert "no new groups" in condition


def test_a_queue_closed_by_its_parent_names_the_parent(bench: QueueStatusBench) -> None:
    bench.put_queues(queue("team", spec_state="Closed"), queue("child", parent="team"))
    bench.rest()
    assert sorted(bench.events()) == [
        ("child", "QueueClosed", "queue team above it is closed; this queue opens when that one does"),
        ("team", "QueueClosed", "the queue accepts no new groups; existing groups continue"),
    ]


def test_a_queue_that_deserves_more_than_nodes_offer_says_so(bench: QueueStatusBench) -> None:
    bench.edit("q", deserved={"cpu": "1", "nvidia.com/gpu": "64"})
    bench.rest()
    assert bench.conditions()["Valid"] == ("True", "Valid")
    assert bench.message("Valid") == "nodes offer less nvidia.com/gpu than it deserves"
    bench.edit("q", deserved={"nvidia.com/gpu": None})
    bench.rest()
    assert bench.message("Valid") == ""


def test_a_guarantee_that_nodes_cannot_meet_makes_one_event(bench: QueueStatusBench) -> None:
    """A queue of which nothing is unmet does not speak of it until something was."""
    bench.rest()
    assert "GuaranteeUnmet" not in bench.conditions()
    bench.edit("q", guarantee={"resource": {"cpu": "1000"}}, deserved={"cpu": "1000"})
    bench.rest()
    assert bench.conditions()["GuaranteeUnmet"] == ("True", "TooFewNodes")
    bench.edit("q", weight=2)
    bench.rest()
    says = "nodes offer less cpu than queues are guaranteed: each has the same part of its guarantee"
    assert bench.events() == [("q", "GuaranteeUnmet", says)]
    bench.edit("q", guarantee={"resource": {"cpu": "4"}}, deserved={"cpu": "4"})
    bench.rest()
    assert bench.conditions()["GuaranteeUnmet"] == ("False", "Met")


def test_a_conflicting_write_is_retried_on_the_newer_copy(bench: QueueStatusBench) -> None:
    bench.store._change("q", {"spec": {"weight": 3}})  # which the watch has not shown yet
    bench.look()
    assert bench.status().state == ""
    bench.rest()
    assert (bench.status().state, bench.copy("q").spec.weight) == ("Open", 3)


def test_a_new_queue_of_the_same_name_gets_no_write_of_its_predecessor(bench: QueueStatusBench) -> None:
    bench.look()
    old = bench.settle().decisions
    bench.ledger.intake.drop_queue("q")
    bench.copies.drop("q")
    bench.store.put(queue("q", uid="new"))
    bench.follow(bench.copy("q"))
    bench.store.calls = []
    bench.now += 2
    bench.reporter.on_decisions(old)
    bench.flush()
    assert bench.store.calls == []


def test_a_state_written_by_a_user_is_not_overwritten_by_an_older_decision(bench: QueueStatusBench) -> None:
    """Volcano's tools write status.state directly, without a Command or the webhooks."""
    bench.look()
    old = bench.settle().decisions
    bench.store._change("q", {"status": {"state": "Closed"}})
    bench.show("q")
    bench.store.calls = []
    bench.now += 2
    bench.reporter.on_decisions(old)
    bench.flush()
    assert bench.store.calls == []
    bench.rest()
    assert bench.status().state == "Closing"


def test_a_write_dropped_by_the_fence_is_made_in_the_next_term(bench: QueueStatusBench) -> None:
    bench.fence.append(False)
    bench.look()
    assert bench.status().state == ""
    bench.leading = False
    bench.look()
    bench.leading = True
    bench.rest()
    assert bench.status().state == "Open"


def test_a_queue_with_contradictory_amounts_says_so(bench: QueueStatusBench) -> None:
    bench.edit("q", capability={"cpu": "four"})
    bench.look()
    assert bench.conditions()["Valid"] == ("False", "InvalidSpec")
    (condition,) = [condition for condition in bench.status().conditions if condition.type == "Valid"]
    assert "'four'" in condition.message


def test_conditions_of_others_and_valid_transition_times_stay(bench: QueueStatusBench) -> None:
    theirs = {
        "type": "Theirs",
        "status": "True",
        "reason": "x",
        "message": "",
        "lastTransitionTime": "long ago",
    }
    ours = {"type": "Open", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "long ago"}
    bench.store._change("q", {"status": {"conditions": [theirs, ours]}})
    bench.show("q")
    bench.rest()
    since = {condition.type: condition.last_transition_time for condition in bench.status().conditions}
    assert (since["Theirs"], since["Open"]) == ("long ago", "long ago")
    assert bench.conditions()["Open"] == ("True", "Open")


def test_the_record_of_the_parent_is_written_before_the_state(bench: QueueStatusBench) -> None:
    bench.put_queues(queue("team"), queue("child", parent="team"))
    bench.rest()
    bench.edit("team", state="Closed")
    assert sorted(bench.look()) == [("patch_queue", "child"), ("state", "team"), ("status", "team")]
    assert bench.status("child").state == "Open"
    assert bench.copy("child").metadata.annotations == {keys.CLOSED_BY_PARENT: "true"}
    assert bench.look() == [("state", "child"), ("status", "child")]
    assert (bench.status("child").state, bench.conditions("child")["Open"]) == (
        "Closed",
        ("False", "ParentClosed"),
    )
    bench.edit("team", state="Open")
    bench.rest()
    assert bench.status("child").state == "Open"
    assert bench.copy("child").metadata.annotations == {}


def test_an_unknown_state_says_what_to_do(bench: QueueStatusBench) -> None:
    bench.put_queues(queue("odd", status_state="Ajar"))
    bench.look()
    assert (bench.status("odd").state, bench.conditions("odd")["Open"]) == (
        "Unknown",
        ("False", "UnknownState"),
    )


def test_while_pods_are_left_to_volcano_numbers_are_not_written(bench: QueueStatusBench) -> None:
    bench.ledger.pods.set_unmanaged(frozenset({"volcano"}))
    bench.rest()
    status = bench.status()
    assert (status.state, status.inqueue, status.share, status.allocated) == ("Open", None, None, None)
    bench.ledger.pods.set_unmanaged(frozenset())
    bench.rest()
    assert (bench.status().inqueue, bench.status().share) == (1, 1.0)


# ---- many queues

NUMBERS_A_SECOND = 2
NUMBERS_AT_ONCE = 20


def many(bench: QueueStatusBench, count: int) -> None:
    """Add `count` queues with a group each, all with an up-to-date status."""
    bench.put_queues(*(queue(f"q{number}") for number in range(count)))
    for number in range(count):
        bench.add(gang(f"g{number}", 1, queue=f"q{number}"))
    for _ in range(count):
        if not bench.look(seconds=60.0):
            return


def test_writes_of_numbers_of_all_queues_share_a_budget(bench: QueueStatusBench) -> None:
    many(bench, 30)
    before, written = bench.now, 0
    for second in range(30):
        bench.add(node("a", cpu=str(5 + second)))  # every queue deserves something else
        written += len(bench.look(seconds=1.0))
    assert 0 < written <= NUMBERS_AT_ONCE + NUMBERS_A_SECOND * (bench.now - before)


def test_a_state_never_waits_behind_numbers(bench: QueueStatusBench) -> None:
    many(bench, 30)
    for second in range(15):
        bench.add(node("a", cpu=str(5 + second)))
        bench.look(seconds=1.0)
    bench.edit("q7", state="Closed")
    bench.look(seconds=1.0)
    assert bench.copy("q7").status.state in ("Closing", "Closed")


def test_the_usage_of_each_flavor_is_written(bench: QueueStatusBench) -> None:
    bench.ledger.intake.set_node(node("a", cpu="4", labels=on_flavor("spot")))
    bench.put_queues(queue("q", flavors=[flavor("spot", deserved={"cpu": "1"}), flavor("ondemand")]))
    bench.start("g")
    bench.rest()
    assert bench.status().flavors == [
        QueueFlavorStatus("spot", {"cpu": "2", "pods": "2"}, {"cpu": "2"}, {}),
        QueueFlavorStatus("ondemand", {}, {}, {}),
    ]
    bench.put_queues(queue("q"))
    bench.rest()
    assert bench.status().flavors is None


class ShownOnChange(QueueStatusBench):
    """Bench whose watch shows a queue when it has changed, and not otherwise."""

    def follow(self, queue: Queue) -> None:
        known = self.copies.get(queue.metadata.name)
        if known is None or known.queue.metadata.resource_version != queue.metadata.resource_version:
            super().follow(queue)


def test_numbers_that_change_constantly_do_not_delay_others() -> None:
    """Report the new numbers of one queue while the past usage of three others changes at each look."""
    held, limits = ("x", "y", "z"), replace(LIMITS, usage_half_life=100.0)
    new_bench = ShownOnChange(*(gang(name, 1, queue=name) for name in held), limits=limits)
    with new_bench.writing():
        new_bench.put_queues(*map(queue, (*held, "q")))
        new_bench.start(*held)
        for _ in range(40):  # the burst is used up
            new_bench.look(seconds=1.01)
        new_bench.add(gang("late", 1, queue="q"))
        for _ in range(10):
            new_bench.look(seconds=1.01)
        assert new_bench.status("q").inqueue == 1
