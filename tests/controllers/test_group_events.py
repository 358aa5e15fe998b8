"""Events about groups: when one is recorded, on which objects, and how rarely."""

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from extender.api.keys import HOLD
from extender.api.objects.base import OwnerReference
from extender.api.objects.pods import Pod
from extender.controllers.events import GroupEvents, StartChanges
from extender.domain.model.reasons import EventReason, Reason, Verdict
from tests.controllers.bench import Bench
from tests.domain.builders import foreign_pod, group, pod
from tests.domain.job_world import BATCH, job
from tests.domain.world import gang, nodes
from tests.rows import each_of

LONG_WAIT, SLOW = 5.0, 30.0

SeenEvent = tuple[str, str, str]  # kind, name, reason


class Announcing(Bench):
    def __init__(self, *objects: object, auto_groups: bool = False) -> None:
        super().__init__(*objects, auto_groups=auto_groups)
        self.announcer = GroupEvents(
            self.ledger, self.recorder, self.leads, StartChanges(), clock=lambda: self.now
        )

    def look(self, after: float = 0.0) -> list[SeenEvent]:
        """Decide, let time pass and decide again; returns the new Events."""
        self.settle()
        self.announcer.on_decisions(self.decisions)
        if after:
            self.pass_time(after)
            self.announcer.on_decisions(self.decisions)
        self.flush()
        events = [event for _, event in self.api.done("event")]
        self.message = next((event["message"] for _, event in self.api.done("event again")), "")
        self.api.calls = []
        return [
            (event["involvedObject"]["kind"], event["involvedObject"]["name"], event["reason"])
            for event in events
        ]


@contextmanager
def announcing(*objects: object, auto_groups: bool = False) -> Iterator[Announcing]:
    bench = Announcing(*objects, auto_groups=auto_groups)
    with bench.writing():
        yield bench


def test_a_lasting_wait_is_an_event_of_the_group_and_its_first_members() -> None:
    with announcing(nodes("a", cpu="1"), gang("g", 5)) as bench:
        assert bench.look() == []
        reason = str(bench.reason("g"))
        assert bench.look(after=LONG_WAIT) == [
            ("PodGroup", "g", reason),
            ("Pod", "g-0", reason),
            ("Pod", "g-1", reason),
            ("Pod", "g-2", reason),
        ]
        assert bench.look(after=100.0) == []


@each_of(True, False)
def test_a_waiting_job_gets_an_event_with_the_reason(suspended: bool) -> None:
    """Give the reason to a suspended job, and to one whose pods exist already."""
    with announcing(nodes("a", cpu="1"), auto_groups=True) as bench:
        new_job = job("train", 2, suspended=suspended, completions=2, completionMode="Indexed")
        bench.ledger.intake.set_job(BATCH, new_job)
        bench.ledger.intake.set_controller(BATCH, new_job)
        if not suspended:
            owner = [OwnerReference(*BATCH, "train", "uid-train", True)]
            for each in (pod("train-0"), pod("train-1")):
                bench.add(replace(each, metadata=replace(each.metadata, owner_references=owner)))
        assert ("Job", "train", "NeverFits") in bench.look(after=LONG_WAIT)


def test_a_prompt_start_makes_no_event() -> None:
    with announcing(nodes("a", "b", cpu="4"), gang("g", 5), pod("lonely")) as bench:
        events = bench.look(after=LONG_WAIT)
        bench.start("g").bind("lonely", "b")
        assert events + bench.look(after=LONG_WAIT) == []


def test_a_start_after_a_reported_wait_makes_an_event() -> None:
    with announcing(nodes("a", cpu="1"), gang("g", 2)) as bench:
        assert ("PodGroup", "g", "NeverFits") in bench.look(after=LONG_WAIT)
        bench.add(nodes("b", cpu="1"))
        bench.start("g")
        assert bench.look(after=LONG_WAIT) == [("PodGroup", "g", "Running")]
        bench.delete("g-0")
        bench.delete("g-1")
        bench.add(gang("g", 2)[1:])
        bench.start("g")
        assert bench.look(after=LONG_WAIT) == []


@each_of((pod("lonely", cpu="8"), "NeverFits"), (pod("lonely", group="nowhere"), "GroupNotFound"))
def test_a_waiting_pod_without_a_podgroup_gets_an_event_with_the_reason(waiting: Pod, reason: str) -> None:
    with announcing(nodes("a", cpu="1"), waiting) as bench:
        assert bench.look(after=LONG_WAIT) == [("Pod", "lonely", reason)]


def test_an_event_names_only_pods_that_exist() -> None:
    with announcing(nodes("a", cpu="2"), foreign_pod("old", on="a", cpu="2"), gang("g", 1)) as bench:
        bench.look(after=LONG_WAIT)
        bench.add(group("g", 1, annotations={HOLD: "true"}))
        bench.look()
        bench.delete("old")
        bench.add(foreign_pod("new", on="a", cpu="2"), group("g", 1))
        bench.look(after=LONG_WAIT)
        assert "it starts once pod team/new ends" in bench.message


def test_a_slow_start_makes_an_event() -> None:
    with announcing(nodes("a", "b", cpu="4"), gang("g", 5)) as bench:
        assert bench.look(after=SLOW - 1) == []
        assert bench.look(after=1) == [("PodGroup", "g", "Starting")]
        bench.start("g")
        assert bench.look() == [("PodGroup", "g", "Running")]


def test_a_start_that_is_undone_makes_one_event_at_once() -> None:
    record, *_, last = gang("g", 3, admitted=True)
    bound = [pod("g-0", "g", on="a"), pod("g-1", "g", on="b")]
    with announcing(nodes("a", "b", cpu="1"), record, bound, last) as bench:
        bench.look(after=LONG_WAIT)
        bench.pass_time(bench.ledger.limits.deadline(3) - LONG_WAIT + 1)
        assert bench.reason("g") is Reason.BACKING_OFF
        assert bench.look() == [("PodGroup", "g", EventReason.UNDONE)]
        assert bench.look() == []


def test_a_verdict_that_alternates_makes_no_events() -> None:
    with announcing(nodes("a", cpu="1"), gang("g", 5)) as bench:
        events = []
        for _ in range(10):
            events += bench.look()
            bench.advance(LONG_WAIT - 1).add(nodes("b", cpu="4"))
            events += bench.look()
            bench.advance(LONG_WAIT - 1).drop_node("b")
        assert events == []


def test_a_follower_sends_no_events_and_continues_where_the_leader_was() -> None:
    """Keep the recorded condition; the replica that leads records later changes."""
    with announcing(nodes("a", cpu="1"), gang("old", 5)) as bench:
        bench.leading = False
        assert bench.look(after=LONG_WAIT) == []
        bench.add(group("old", 5, last_reason=str(bench.reason("old"))))
        bench.add(gang("new", 6))
        assert bench.look(after=LONG_WAIT) == []
        bench.leading = True
        assert {name for _, name, _ in bench.look()} == {"new", "new-0", "new-1", "new-2"}


def test_events_of_many_groups_are_sent_one_after_the_other() -> None:
    """No Event is lost, it only comes later."""
    groups = [gang(f"g{number}", 5) for number in range(60)]
    with announcing(nodes("a", cpu="1"), groups) as bench:
        first = bench.look(after=LONG_WAIT)
        assert len(first) <= 50
        events = first
        for _ in range(50):
            events += bench.look(after=1.0)
        assert {name for kind, name, _ in events if kind == "PodGroup"} == {f"g{n}" for n in range(60)}


def test_a_deleted_group_is_forgotten() -> None:
    with announcing(nodes("a", cpu="1"), pod("lonely", cpu="8")) as bench:
        bench.look()
        bench.delete("lonely")
        assert bench.look(after=LONG_WAIT) == []


def test_waiting_replacements_get_an_event() -> None:
    with announcing(nodes("a", "b", cpu="1"), gang("g", 2)) as bench:
        bench.start("g")
        bench.look(after=LONG_WAIT)
        lost = bench.pods["g-0"].spec.node_name
        bench.delete("g-0").drop_node(lost)
        bench.add(pod("g-9", group="g")).settle()
        assert bench.verdict("g") is Verdict.RUNNING
        events = bench.look(after=LONG_WAIT)
        assert events == [("PodGroup", "g", "NoRoom"), ("Pod", "g-9", "NoRoom")]
