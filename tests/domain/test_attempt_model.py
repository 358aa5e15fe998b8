"""Starts in every order of events: a gang of three, two nodes, a scheduler behind the proxy, and one fault.

The scheduler reads through Muster. The fault is a refusal, or a crash of Muster after which all is rebuilt
from the API server's objects. `make nightly` and `make coverage` explore one of each. Exploration is breadth
first, on the real ledger with real decisions. States that differ only in names of members and nodes, or in
the time, are explored once.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import count, permutations
from typing import Any

import pytest

from extender.domain.ledger.claims import Claim, ClaimStage
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.model.reasons import Reason, Verdict, refusal
from extender.domain.model.records import Uid
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.jobs import JobRules
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import NAMESPACE, SCHEDULER, group, node, pod
from tests.domain.world import key
from tests.property_examples import TIMES

MEMBERS, NODES, CAPACITY, GANG = ("p0", "p1", "p2"), ("a", "b"), 2, key("g")
# Time passes to what is said, to the end of a grace, of the start or of a pause.
LIMITS = Limits(
    start_deadline=60.0, start_deadline_base=60.0, arrival_grace=99.0, stall_grace=99.0, refusal_memory=99.0
)
JOBS = JobRules()
FULL = 0.7  # of the examples of properties: with so many, all faults are explored
WORDS = "0/2 nodes are available: 2 too crooked."

Event = tuple[str, Callable[["Model"], None]]


class Model:
    """Model of API server, scheduler and Muster.

    The API server has `bound` and `admitted`, the scheduler `calls` (by member the node and a token),
    Muster `ledger` and `posting`.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.bound: dict[str, str] = {}
        self.born = dict.fromkeys(MEMBERS, 0)  # how often a member was evicted and made again
        self.admitted = False
        self.refusals = self.crashes = 1
        self.faults = 1 if TIMES < FULL else 2
        self.part_since: float | None = None
        self.tokens = count(1)
        self.restart()

    # ---- parts that are copied: no closures

    def clock(self) -> float:
        return self.now

    def ignore(self) -> None:
        pass

    def copy(self) -> "Model":
        old = self.ledger
        shared = [
            *old.pods.by_uid.values(),
            *(each.shape for each in old.pods.by_uid.values()),
            old.decisions,
        ]
        shared += [
            old.claims.capacity.table(),
            old.pods.other_pods(),
            *old._infos._infos.values(),
            *self._api.values(),
            LIMITS,
            JOBS,
        ]
        copy = deepcopy(self, {id(each): each for each in shared})
        copy.ledger.assumed_pods._read_decisions = lambda: copy.ledger.decisions
        return copy

    # ---- Muster

    def restart(self) -> None:
        """Start a process that knows the API server's objects; the calls to the old one have failed."""
        self.ledger = Ledger(
            Ownership(frozenset({SCHEDULER}), auto_groups=False),
            LIMITS,
            clock=self.clock,
            on_shown=self.ignore,
            jobs=JOBS,
        )
        self.ledger.intake.trust_markers(True)
        self.calls: dict[str, tuple[str, int]] = {}
        self.posting: tuple[str, ...] = ()
        self.released_at: float | None = None
        self._api: dict[str, Any] = {}
        for name in NODES:
            self.ledger.intake.set_node(node(name, cpu=str(CAPACITY)))
        self.write_group()
        for name in MEMBERS:
            self.write_pod(name)
        self.cycle()

    def uid(self, name: str) -> Uid:
        return Uid(f"uid-{name}-{self.born[name]}")

    def write_group(self) -> None:
        self._api["g"] = group("g", 3, admitted=self.admitted)
        self.ledger.intake.set_group(self._api["g"])

    def write_pod(self, name: str) -> None:
        where = self.bound.get(name, "")
        new_pod = pod(name, "g", on=where, uid=self.uid(name), gated=False, phase="Pending")
        self._api[name] = new_pod
        self.ledger.pods.set_pod(new_pod)

    def cycle(self) -> None:
        """Decide until nothing changes; what follows from decisions happens at once."""
        self.ledger.record_scheduler_call()
        for _ in range(20):
            version = self.ledger.version
            self.ledger.publish(decide(self.ledger.snapshot()))
            self.follow()
            if self.ledger.version == version:
                return
        raise AssertionError("does not settle")

    def follow(self) -> None:
        decision = self.ledger.decisions.groups[GANG]
        waits, starts = decision.verdict is Verdict.WAITING, decision.verdict is Verdict.STARTING
        if self.admitted != starts:
            self.admitted = starts
            self.write_group()
        for due in self.ledger.shown_pods.due_groups():
            self.ledger.shown_pods.release(due)
        shown = self.ledger.shown_pods._releases.appearances
        self.released_at = None if not starts else self.released_at or (self.now if shown else None)
        for name, (_, token) in list(self.calls.items()):
            claim = self.claim(name)
            if waits and claim is not None and claim.stage is ClaimStage.HELD:
                self.ledger.assumed_pods.release(self.uid(name), token)
            if (claim := self.claim(name)) is None or claim.token != token:
                self.fail_call(name)
        for uid in decision.undo:
            self.evict(next(name for name in MEMBERS if self.uid(name) == uid))
        self.confirm()

    def claim(self, name: str) -> Claim | None:
        return self.ledger.claims.get(self.uid(name))

    def confirm(self) -> None:
        confirmed = self.ledger.assumed_pods.confirm(GANG)
        assert not confirmed.claims_to_post or {*self.bound, *self.calls} == {*MEMBERS}, (
            "bound before all are there"
        )
        self.posting += tuple(claim.pod.name for claim in confirmed.claims_to_post)
        for claim in confirmed.lost_claims:
            self.fail_call(claim.pod.name)

    def fail_call(self, name: str) -> None:
        """Have the scheduler forget the pod, and report it."""
        del self.calls[name]
        self.ledger.shown_pods.record_status(NAMESPACE, name, "")

    def evict(self, name: str) -> None:
        """Evict a pod; its controller creates another one."""
        self.ledger.pods.drop(self.uid(name))
        self.bound.pop(name, None)
        self.born[name] += 1
        self.write_pod(name)

    # ---- events

    def events(self) -> Iterator[Event]:
        """Yield the events; the first of several members in the same state stands for all."""
        shown = self.ledger.shown_pods._releases.appearances
        for name in {repr(self._member(name, NODES)): name for name in reversed(MEMBERS)}.values():
            if self.uid(name) in shown and name not in self.calls and name not in self.bound:
                yield from self.attempts(name)
            if name in self.posting:
                yield f"post {name}", partial(Model.post, name=name)
        if self.crashes and self.faults:
            yield "crash", Model.crash
        yield "time", Model.pass_time

    def attempts(self, name: str) -> Iterator[Event]:
        """Yield the scheduler's possible calls for a pod: it knows bound and held pods."""
        used = [*self.bound.values(), *(where for where, _ in self.calls.values())]
        for where in NODES:
            if used.count(where) < CAPACITY:
                yield f"bind {name} {where}", partial(Model.take, name=name, where=where)
        if self.refusals and self.faults:
            yield f"refuse {name}", partial(Model.refuse, name=name)

    def take(self, name: str, where: str) -> None:
        asks = self.ledger.shown_pods._releases.appearances[self.uid(name)].has_marker
        answer = self.ledger.assumed_pods.assume(self.uid(name), [where]) if asks else [where]
        refused = answer if isinstance(answer, Reason) else None
        token = next(self.tokens)
        refused = refused or self.ledger.assumed_pods.hold(self.uid(name), where, token)
        if refused is not None:
            self.ledger.shown_pods.record_status(NAMESPACE, name, refusal(refused))
        else:
            self.calls[name] = where, token
            self.confirm()
        self.cycle()

    def refuse(self, name: str) -> None:
        self.refusals -= 1
        self.faults -= 1
        self.ledger.shown_pods.record_status(NAMESPACE, name, WORDS)
        self.cycle()

    def post(self, name: str) -> None:
        where, _ = self.calls.pop(name)
        self.posting = tuple(each for each in self.posting if each != name)
        self.bound[name] = where
        self.write_pod(name)
        self.cycle()

    def crash(self) -> None:
        """Crash Muster: requests to the API server are lost."""
        self.crashes -= 1
        self.faults -= 1
        self.restart()

    def pass_time(self) -> None:
        leaving = self.ledger.shown_pods._releases._ends_at.values()
        instants = [self.ledger.decisions.requeue_at, *leaving]
        later = [instant for instant in instants if instant is not None and instant > self.now]
        assert later, "nothing would requeue the group"
        self.now = min(later) + 0.001
        self.cycle()

    # ---- what must be true

    def check(self) -> None:
        decision = self.ledger.decisions.groups[GANG]
        for where in NODES:
            assert [*self.bound.values()].count(where) <= CAPACITY
            assert len(list(self.ledger.claims.on_node(where))) <= CAPACITY
        if self.released_at is not None:
            assert self.now <= self.released_at + LIMITS.start_deadline + 1.0, "a start without an end"
        uids = {self.uid(name): name for name in MEMBERS}
        for claim in self.ledger.claims:
            name = uids[claim.pod.uid]
            if claim.stage is ClaimStage.PLANNED:
                assert decision.plan.get(claim.pod.uid) == claim.node
            elif claim.stage is ClaimStage.ANSWERED:
                assert claim.pod.uid in self.ledger.shown_pods._releases.appearances
            elif claim.stage is ClaimStage.HELD or claim.stage is ClaimStage.POSTED:
                assert self.calls[name] == (claim.node, claim.token)
            else:
                assert self.bound[name] == claim.node
        if decision.verdict is Verdict.WAITING:
            assert all(claim.stage >= ClaimStage.POSTED for claim in self.ledger.claims)
        in_part = 0 < len(self.bound) < len(MEMBERS)
        self.part_since = (self.part_since or self.now) if in_part else None
        if self.part_since is not None:
            assert self.now <= self.part_since + 2 * LIMITS.start_deadline, "a gang in part"

    @property
    def stands(self) -> bool:
        return len(self.bound) == len(MEMBERS)

    @property
    def has_failed(self) -> bool:
        """Return whether a start has failed: further failures are like the first."""
        return not self.bound and self.ledger.registry.group(GANG).start.failures > 0

    def state(self) -> str:
        """Return the same text for states that differ only in names and in the time."""
        return min(self._named(nodes) for nodes in permutations(NODES))

    def _named(self, nodes: Sequence[str]) -> str:
        start = self.ledger.registry.group(GANG).start
        members = sorted(repr(self._member(name, nodes)) for name in MEMBERS)
        instants = start.admitted_at, start.released_at, start.retry_at, self.released_at, self.part_since
        refused = sorted(nodes.index(name) for name in self.ledger._refusals._refusals_by_node)
        rest = self.admitted, self.refusals, self.crashes, self.faults, start.failures, start.was_admitted
        verdict = self.ledger.decisions.groups[GANG].verdict
        return repr((members, [*map(self._ago, instants)], refused, rest, verdict))

    def _member(self, name: str, nodes: Sequence[str]) -> tuple[object, ...]:
        number = {where: at for at, where in enumerate((*nodes, ""))}
        releases, uid, claim = self.ledger.shown_pods._releases, self.uid(name), self.claim(name)
        attempt, looks = self.ledger.registry.group(GANG).attempts.get(uid), releases.appearances.get(uid)
        return (
            number[self.bound.get(name, "")],
            claim and (number[claim.node], claim.stage, self._ago(claim.stage_since)),
            attempt and (attempt.message, attempt.refusals, attempt.was_asked_again),
            attempt and (self._ago(attempt.shown_at), self._ago(attempt.refused_at)),
            looks and (looks.has_marker, number[looks.node]),
            self._ago(releases._ends_at.get(uid)),
            name in self.calls,
            name in self.posting,
        )

    def _ago(self, instant: float | None) -> float | None:
        return None if instant is None else round(max(self.now - instant, -100.0), 1)


@pytest.mark.timeout(600, method="thread")  # with coverage it explores all faults, on a machine under load
def test_a_start_ends_whole_or_not_at_all_in_every_order_of_events() -> None:
    first = Model()
    seen, left = {first.state()}, deque([(first, tuple[str, ...]())])
    whole = failed = 0
    while left:
        model, way = left.popleft()
        *others, last = model.events()
        copies = [(model.copy(), event) for event in others]
        for later, (name, event) in (*copies, (model, last)):
            try:
                event(later)
                later.check()
            except Exception as fault:
                raise AssertionError(f"after {', '.join((*way, name))}") from fault
            whole += later.stands
            failed += later.has_failed
            if not (later.stands or later.has_failed) and (state := later.state()) not in seen:
                seen.add(state)
                left.append((later, (*way, name)))
    assert whole > 20
    assert failed > 400
    assert len(seen) > 400
