"""Statuses after failures: each PodGroup gets the decided status in the end.

Nothing is forgotten, and nothing waits indefinitely.
"""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from extender.controllers.podgroup_status import report_of, reported_status
from extender.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServerFault,
    TooManyRequests,
    Unreachable,
)
from tests.controllers.podgroup_bench import PodGroupBench
from tests.domain.builders import foreign_pod, node
from tests.domain.world import gang, key
from tests.property_examples import examples

GROUPS = 6
FAULTS: tuple[ApiError | Exception, ...] = (
    Conflict(409),
    Forbidden(403),
    ServerFault(500),
    TooManyRequests(429),
    Unreachable("down"),
    NotFound(404),
    ValueError("a bug"),
)
STEPS = st.one_of(
    st.tuples(st.just("fail"), st.integers(0, len(FAULTS) - 1)),
    st.tuples(st.just("lead"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 5.0, 40.0])),
    st.tuples(st.just("stranger"), st.integers(1, 30)),
    st.tuples(st.just("start"), st.integers(0, GROUPS - 1)),
    st.tuples(st.just("hide"), st.integers(0, GROUPS - 1)),
)


class Course(PodGroupBench):
    """Gangs that wait for capacity on one node, and faults that happen to them."""

    def __init__(self) -> None:
        super().__init__([node("a", cpu="4"), *(gang(f"g{n}", 2, cpu="1") for n in range(GROUPS))])
        self.strangers = 0

    def take(self, step: str, what: Any) -> None:
        match step:
            case "fail":
                self.api.faults["patch"].append(FAULTS[what])
            case "lead":
                self.leading = what
            case "wait":
                self.advance(what)
            case "stranger":
                self.strangers += 1
                self.add(foreign_pod(f"s{self.strangers}", on="a", cpu=f"{what}m"))
            case "start" if self.verdict(f"g{what}").name == "STARTING":
                self.start(f"g{what}")
            case "hide":  # the watch brings an older copy again
                self.show(f"g{what}")
        self.settle()
        self.look()

    def settle_without_faults(self) -> None:
        self.leading = True
        self.api.faults.clear()
        for _ in range(15):
            self.advance(40.0)
            self.settle()
            self.look()

    def unsaid(self) -> list[str]:
        """Return groups whose copy at the API server differs from the decision."""
        return [
            name
            for name, copy in self.copies.items()
            if report_of(
                self.decision(name), None, reported_status(copy), *self.ledger.groups.history(key(name))
            )
            != reported_status(copy)
        ]


@example([("fail", 5)])
@settings(max_examples=examples(25), deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_every_group_finally_has_its_decision_in_the_status(steps: list[tuple[str, Any]]) -> None:
    course = Course()
    with course.writing(), capture_logs():
        for step, what in steps:
            course.take(step, what)
        course.settle_without_faults()
        assert course.unsaid() == []
        assert course.look() == []
        assert course.reporter.waiting_count == 0
