"""Jobs in any course of events: no capacity is allocated twice or lost, and no claim outlives its reason."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from extender.api import keys
from extender.domain.model.reasons import Verdict
from tests.domain.builders import node, queue
from tests.domain.decided_twice import DecidedTwice
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.world import timestamp
from tests.property_examples import examples

NAMES = ("a", "b", "c")
CPUS = 4
NAME = st.sampled_from(NAMES)


class Jobs(DecidedTwice):
    """Three jobs on two nodes, whose controller and scheduler work or do not."""

    world: JobWorld

    def __init__(self) -> None:
        super().__init__()
        self.world = JobWorld(node("n0", cpu="2"), node("n1", cpu="2"), queue("q", start_timeout="1m"))

    @rule(
        name=NAME,
        parallelism=st.integers(0, 5),
        least=st.sampled_from(["", "1", "2"]),
        more=st.sampled_from([{}, {"completions": 4}, {"completions": 9}]),
    )
    def submit(self, name: str, parallelism: int, least: str, more: dict[str, Any]) -> None:
        notes = {keys.MIN_PARALLELISM: least} if least else {}
        if name not in self.world.jobs:
            came = timestamp(0)  # long enough ago for a reservation
            self.world.submit(job(name, parallelism, queue="q", created=came, annotations=notes, **more))

    @rule(name=NAME)
    def remove(self, name: str) -> None:
        if name in self.world.jobs:
            self.world.delete(*self.world.pods_of(name))
            self.world.remove(name)

    @rule(name=NAME, spec=st.sampled_from([{"suspend": True}, {"suspend": False}, {"parallelism": 1}]))
    def change(self, name: str, spec: dict[str, Any]) -> None:
        if name in self.world.jobs:
            self.world.change(name, **spec)

    @rule()
    def work(self) -> None:
        self.world.work()

    @rule(stopped=st.booleans())
    def let_the_controller(self, stopped: bool) -> None:
        self.world.stopped = stopped

    @rule(name=NAME)
    def schedule(self, name: str) -> None:
        """Schedule all pods of a job that may start."""
        self.world.settle()
        if name in self.world.jobs:
            waiting = [each for each in self.world.pods_of(name) if not self.world.pods[each].spec.node_name]
            planned = [each for each in waiting if self.world.stage(each) is not None]
            if waiting and planned == waiting:
                self.world.scheduler_takes(*waiting)
                self.world.run(*waiting)

    @rule(name=NAME)
    def finish(self, name: str) -> None:
        running = [
            each for each in self.world.pods_of(name) if self.world.pods[each].status.phase == "Running"
        ]
        self.world.finish(*running[:1])

    @rule(seconds=st.sampled_from([1, 30, 61, 400]))
    def pass_time(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def no_capacity_is_allocated_twice(self) -> None:
        used: dict[str, int] = {}
        for claim in self.world.ledger.claims:
            used[claim.node] = used.get(claim.node, 0) + 1
        assert all(count <= CPUS / 2 for count in used.values()), used

    @invariant()
    def expected_pods_belong_to_a_job_that_waits_or_starts(self) -> None:
        self.world.settle()
        for name in NAMES:
            group = self.world.ledger.registry.groups.get(_key(name))
            expected = [pod for pod in group.pods.values() if pod.is_expected] if group else []
            if not expected:
                continue
            assert name in self.world.jobs
            comes_in_waves = "completions" in self.world.jobs[name].spec
            assert comes_in_waves or not (group and group.has_fully_run and not self.world.suspended(name))
            assert len(expected) <= max(self.world.jobs[name].spec["parallelism"], 0)

    def teardown(self) -> None:
        """Check that everything that fits runs once faults have ended and the others are gone."""
        self.world.stopped = False
        for name in NAMES[1:]:
            self.remove(name)
        self.remove("a")
        self.world.pass_time(1000)
        self.world.submit(job("a", 2, queue="q")).run_whole("a").work()
        assert self.world.verdict(podgroup_name("a")) is Verdict.RUNNING
        assert self.world.claim_count() == 2


def _key(name: str) -> Any:
    return f"team/{podgroup_name(name)}"


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=examples(15), stateful_step_count=25, deadline=None)
