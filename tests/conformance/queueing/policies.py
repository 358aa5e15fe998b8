"""Order in which a queue starts its groups: rotation, blocking, and both together.

The steps of a case become worlds. `next` is the group that starts where there is capacity for one. In a queue
that rotates, `fail` is a start that failed; in one that blocks, the quota of that job is full: quotas are
users with a limit, and a full one has a running group. A granted group that does not run yet holds its
capacity.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import PriorityClass
from extender.api.objects.queues import QueueLimits, RunningLimit
from extender.domain.model.reasons import Verdict
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.order import Strategies, lines_by_queue
from extender.domain.snapshot.group_info import GroupInfo, Start
from extender.domain.snapshot.snapshot import Snapshot
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.needs import in_family
from tests.conformance.queueing.waiting import QUEUE, instant
from tests.conformance.verdicts import Check, NoCounterpart, Skip
from tests.domain.builders import node, queue
from tests.domain.world import World, gang

Step = Mapping[str, Any]
_STRATEGIES = {"Priority": "rotation", "Block": "fifo", "Intelligent": "mixed"}
_FREES = ("add", "delete", "resource_released")
_BUSY = "busy-"
_QUESTIONS = ("next", "peek_again", "top", "order", "length", "classes", "class_sizes")


def check_policy(case: Case) -> Iterator[str]:
    script = _Script(case.input["policy"], case.input["config"].get("priority_threshold"))
    for number, step in enumerate(case.input["steps"]):
        if step["do"] in _QUESTIONS:
            yield from unequal(f"step {number}, {step['do']}", step.get("want"), script.ask(step["do"]))
        else:
            script.do(step)


class _Script:
    def __init__(self, policy: str, threshold: int | None) -> None:
        self._policy = policy
        self._threshold = threshold
        self._jobs: dict[str, dict[str, Any]] = {}
        self._turns: dict[str, int] = {}  # number of turns, by job
        self._full: set[str] = set()  # quotas without free capacity
        self._granted: set[str] = set()  # jobs that do not run yet

    def do(self, step: Step) -> None:
        job = step.get("job", "")
        match step["do"]:
            case "add":
                self._jobs[job] = {"priority": 0, "quota": "", "first_attempt": 0, **step}
                self._full.discard(self._quota(job))
            case "delete" | "mark_satisfied" | "reserve":
                self._full.discard(self._quota(job))
                self._jobs.pop(job, None)
            case "set_granted_not_running":
                self._granted.add(job)
            case "set_priority":
                self._jobs[job]["priority"] = step["priority"]
            case "set_threshold":
                self._threshold = step.get("value")
            case "resource_released":
                name, _, quota = job.partition(":")
                self._full.discard(quota or self._quota(name))
            case "fail":
                self._record_failure(job)
            case _:
                raise NoCounterpart(f"step {step['do']}")

    def _quota(self, job: str) -> str:
        return str(self._jobs[job]["quota"]) if job in self._jobs else ""

    def _record_failure(self, job: str) -> None:
        if self._policy == "Block":
            self._full.add(self._quota(job))
        elif self._policy == "Priority" or job in self._classes()["low"]:
            self._turns[job] = self._turns.get(job, 0) + 1

    def ask(self, question: str) -> Any:
        match question:
            case "next" | "peek_again" | "top":
                return self._next_start()
            case "order":
                return [_id(info) for info in self._waiting_groups()]
            case "length":
                return len(self._waiting_groups())
            case "classes":
                return self._classes()
            case "class_sizes":
                return {name: len(jobs) for name, jobs in self._classes().items()}
        raise AssertionError(question)

    # ---- decisions of Muster

    def _next_start(self) -> str | None:
        decided = decide(self._snapshot()).groups.values()
        starting = [
            decision.key.partition("/")[2] for decision in decided if decision.verdict is Verdict.STARTING
        ]
        return starting[0] if starting else None

    def _waiting_groups(self) -> list[GroupInfo]:
        snapshot = self._snapshot()
        waiting = [info for info in snapshot.groups.values() if not _id(info).startswith(_BUSY)]
        return list(
            lines_by_queue(waiting, lambda info: info, Strategies(Cycle(snapshot)).rank).get(QUEUE, ())
        )

    def _classes(self) -> dict[str, list[str]]:
        strategies = Strategies(Cycle(self._snapshot()))
        classes: dict[str, list[str]] = {"high": [], "low": []}
        for info in self._waiting_groups():
            classes["high" if strategies.strategy_of(info).has_high_priority(info) else "low"].append(
                _id(info)
            )
        return classes

    def _snapshot(self) -> Snapshot:
        snapshot = self._world().ledger.snapshot()
        return replace(
            snapshot,
            groups={key: self._after_turns(info, snapshot.now) for key, info in snapshot.groups.items()},
        )

    def _after_turns(self, info: GroupInfo, now: float) -> GroupInfo:
        turns = self._turns.get(_id(info), 0)
        again_at = now + 60 if turns else 0.0
        return replace(info, start=Start(failures=turns, retry_at=again_at, rotation=turns))

    def _world(self) -> World:
        limits = QueueLimits(per_user=RunningLimit(groups=1))
        spec: dict[str, Any] = {"priority_threshold": self._threshold, "limits": limits}
        world = World(node("n", cpu="1"), queue(QUEUE, strategy=_STRATEGIES[self._policy], **spec))
        for quota in sorted(self._full):
            world.add(node(f"m-{quota}", cpu="1"), _group_of(f"{_BUSY}{quota}", quota, on=f"m-{quota}"))
        for name, job in self._jobs.items():
            priority = job["priority"]
            class_name = f"p{priority}"
            world.add(PriorityClass(Meta(name=class_name), priority))
            created = instant(job["first_attempt"])
            on = "n" if name in self._granted else ""
            world.add(
                _group_of(
                    name, job["quota"], priority_class=class_name, priority=priority, created=created, on=on
                )
            )
        return world


def _group_of(name: str, quota: str, **fields: Any) -> list[Any]:
    return gang(name, 1, queue=QUEUE, notes={keys.SUBMITTER: quota}, **fields)


def _id(info: GroupInfo) -> str:
    return info.key.partition("/")[2]


def _is_tried_twice(case: Case) -> bool:
    """Return whether a job is tried again after something came, went or became free."""
    failed: set[str] = set()
    is_freed = False
    for step in case.input["steps"]:
        if step["do"] == "fail":
            failed.add(step.get("job", ""))
            is_freed = False
        elif step["do"] in _FREES:
            failed.discard(step.get("job", ""))
            is_freed = True
        elif (
            is_freed
            and case.input["policy"] != "Block"
            and step["do"] == "next"
            and step.get("want") in failed
        ):
            return True
    return False


def _waits_for_the_granted(case: Case) -> bool:
    """Return whether it makes a difference that a granted job does not run yet."""
    granted = any(step["do"] == "set_granted_not_running" for step in case.input["steps"])
    return granted and any(check_policy(case))


CHECKS: dict[str, Check] = {"kubequeue_policy": check_policy}
SKIPS: tuple[Skip, ...] = (
    Skip(
        "in a queue that rotates, no group is tried twice before all were tried once, whatever becomes free",
        in_family("kubequeue_policy", where=_is_tried_twice),
    ),
    Skip(
        "capacity and the window limit how many start at once, not whether admitted groups run by now",
        in_family("kubequeue_policy", where=_waits_for_the_granted),
    ),
)
