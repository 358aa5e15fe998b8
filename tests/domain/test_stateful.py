"""The ledger under any order of events: its running sums always equal a count from scratch."""

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import asdict, replace

from extender.api import keys
from extender.domain.ledger.claims import ClaimEvent, ClaimStage, allows
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import Uid
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.group_info import GroupInfo
from tests.domain.builders import anti_affinity, foreign_pod, group, node, pod, queue
from tests.domain.world import LIMITS, World, gang, key
from tests.property_examples import examples

NODES = tuple(f"n{n}" for n in range(4))
PODS = tuple(f"g{group_}-{n}" for group_ in range(3) for n in range(3))
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"host_port": 80},
    {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")},
    {"labels": {"app": "x"}},
    {"more": {"x.io/gpu": "1"}},
    {"annotations": {keys.REQUIRED_TOPOLOGY: "rack"}},
    {"annotations": {keys.SLICE_TOPOLOGY: "rack", keys.SLICE_SIZE: "2"}},
)
some_node = st.sampled_from(NODES)
some_pod = st.sampled_from(PODS)
some_group = st.sampled_from(("g0", "g1", "g2"))


class Events(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World(node("n0"), node("n1"), gang("g0", 3)).settle()
        self.old: Decisions | None = None
        self.asked: dict[str, int] = {"g0": 3}  # what PodGroups ask for
        self.decided = dict(self.asked)  # what they asked for when decisions were last made on them
        self.asked_then: dict[str, int] = {}

    def teardown(self) -> None:
        """Check the end of any history: once all calls have ended and time has passed.

        Only decisions and pods on nodes hold capacity, and a gang in pieces is completed or undone.
        """
        ledger = self.world.ledger
        for claim in list(ledger.claims):
            for token in claim.call_tokens:
                ledger.assumed_pods.release(claim.pod.uid, token)
        self.world.advance(LIMITS.start_deadline + 1)
        ledger.snapshot()
        assert {claim.stage for claim in ledger.claims} <= {ClaimStage.PLANNED, ClaimStage.BOUND}
        self.world.settle().pass_time(LIMITS.start_deadline)
        for view in ledger.snapshot().groups.values():
            if view.is_on_nodes and not (view.is_whole or view.has_fully_run or view.leaving_count):
                decision = ledger.decisions.groups[view.key]
                assert decision.undo or decision.verdict is Verdict.STARTING

    def there(self, name: str) -> bool:
        return name in self.world.pods

    # ---- what watches bring

    @rule(
        name=some_node,
        cpu=st.sampled_from(["1", "4"]),
        cordoned=st.booleans(),
        gpus=st.sampled_from(["0", "2"]),
        moves=st.booleans(),
    )
    def node_comes_or_changes(self, name: str, cpu: str, cordoned: bool, gpus: str, moves: bool) -> None:
        labels = {"rack": "r0" if (name in NODES[:2]) != moves else "r1"}
        self.world.add(node(name, cpu=cpu, cordoned=cordoned, labels=labels, more={"x.io/gpu": gpus}))

    @rule(name=some_node)
    def node_goes(self, name: str) -> None:
        if name in self.world.nodes:
            self.world.drop_node(name)

    @rule(name=some_pod, cpu=st.sampled_from(["1", "2"]), kind=st.sampled_from(KINDS), gated=st.booleans())
    def pod_comes(self, name: str, cpu: str, kind: dict[str, Any], gated: bool) -> None:
        if not self.there(name):
            self.world.add(pod(name, name[:2], cpu=cpu, gated=gated, **kind))

    @rule(name=some_pod, where=some_node)
    def pod_is_bound(self, name: str, where: str) -> None:
        if self.there(name) and not self.world.pods[name].spec.node_name:
            self.world.ungate(name).bind(name, where)

    @rule(name=some_pod, phase=st.sampled_from(["Running", "Succeeded", "Failed"]))
    def pod_runs_or_ends(self, name: str, phase: str) -> None:
        if self.there(name) and self.world.pods[name].spec.node_name:
            self.world.finish(name, phase=phase)

    @rule(name=some_pod)
    def pod_is_marked_deleted(self, name: str) -> None:
        if self.there(name):
            self.world.mark_deleted(name)

    @rule(name=some_pod)
    def pod_is_gone(self, name: str) -> None:
        if self.there(name):
            self.world.delete(name)

    @rule(name=some_pod, message=st.sampled_from(["0/1 no.", "0/2 no."]))
    def pod_is_refused(self, name: str, message: str) -> None:
        if self.there(name):
            self.world.refuse(name, message)

    @rule(where=some_node, gone=st.booleans())
    def stranger_comes_or_goes(self, where: str, gone: bool) -> None:
        name = f"stranger-{where}"
        if gone and self.there(name):
            self.world.delete(name)
        else:
            self.world.add(foreign_pod(name, on=where, labels={"app": "x"}))

    @rule(
        name=some_group,
        needed=st.integers(0, 3),
        gone=st.booleans(),
        notes=st.sampled_from([{}, {}, {keys.HOLD: "true"}, {keys.REQUIRED_TOPOLOGY: "rack"}]),
    )
    def group_comes_or_goes(self, name: str, needed: int, gone: bool, notes: dict[str, str]) -> None:
        if gone:
            self.world.ledger.intake.drop_group(key(name))
            self.asked.pop(name, None)
        else:
            self.world.add(group(name, needed, annotations=notes))
            self.asked[name] = needed

    @rule(state=st.sampled_from(["", "Closed"]), stop_policy=st.sampled_from(["", "Hold"]))
    def queue_changes(self, state: str, stop_policy: str) -> None:
        self.world.add(queue("default", spec_state=state, stop_policy=stop_policy))

    # ---- what verbs do

    @rule(name=some_pod, offered=st.lists(some_node, max_size=4, unique=True))
    def filter_asks(self, name: str, offered: list[str]) -> None:
        if self.there(name):
            answer = self.world.answer(name, offered)
            assert not isinstance(answer, list) or (answer and set(answer) <= set(offered))
            assert self.world.answer(name, offered) == answer

    @rule(name=some_pod, where=some_node)
    def bind_is_called(self, name: str, where: str) -> None:
        if self.there(name) and self.world.hold(name, where) is None:
            claim = self.world.claim(name)
            assert claim is not None
            assert (claim.node, claim.stage) == (where, ClaimStage.HELD)

    @rule(name=some_group)
    def barrier_looks(self, name: str) -> None:
        requested = self.asked.get(name)
        confirmation = self.world.confirm(name)
        for claim in confirmation.claims_to_post:
            assert self.world.stage(claim.pod.name) is ClaimStage.POSTED
        for claim in confirmation.lost_claims:
            assert self.world.stage(claim.pod.name) is (ClaimStage.POSTED if claim.postings else None)
        if confirmation.claims_to_post:
            assert requested is not None, "no member is bound without a PodGroup"
            assert requested == self.decided.get(name), "nor by a decision on what it asked for before"
            self.share_domains(name, {claim.pod.uid: claim.node for claim in confirmation.claims_to_post})

    def share_domains(self, name: str, posted: dict[Uid, str]) -> None:
        """Check that members are bound next to the others of their sets."""
        info = self.world.ledger.snapshot().groups[key(name)]
        members = [
            *info.assumed_pods,
            *((each, each.node) for each in info.placed_pods if each.holds_capacity),
        ]
        racks = {name: (node.metadata.labels or {}).get("rack") for name, node in self.world.nodes.items()}
        for pod_set in {each for member, _ in members if member.uid in posted for each in member.pod_sets}:
            inside = {member.uid: racks.get(node) for member, node in members if pod_set in member.pod_sets}
            claims = {uid: self.world.ledger.claims.get(uid) for uid in inside.keys() - posted.keys()}
            on_nodes = [
                uid for uid, claim in claims.items() if claim is None or claim.stage >= ClaimStage.POSTED
            ]
            new = {rack for uid, rack in inside.items() if uid in posted}
            others = {inside[uid] for uid in on_nodes}
            assert None not in new
            assert new <= others if others else len(new) == 1

    @rule(name=some_group, missing=st.integers(0, 1))
    def gang_reaches_the_barrier(self, name: str, missing: int) -> None:
        """Hold the bind calls of all planned members, or of all but one."""
        if key(name) not in self.world.decisions.groups:
            return
        plan = list(self.world.plan(name).items()) if self.planned_are_there(name) else []
        for member, where in plan[missing:]:
            self.world.ungate(member).hold(member, where)

    def planned_are_there(self, name: str) -> bool:
        uids = {Uid(each.metadata.uid) for each in self.world.pods.values()}
        return self.world.decision(name).plan.keys() <= uids

    @rule(name=some_pod)
    def call_ends(self, name: str) -> None:
        """End a call; only its own claim is released."""
        if self.there(name):
            claim = self.world.claim(name)
            self.world.release(name)
            if claim is None or not allows(ClaimEvent.RELEASE, claim.stage):
                assert self.world.claim(name) is claim
            else:
                others = claim.call_tokens - {claim.token}
                assert self.world.stage(name) is (ClaimStage.POSTED if others else None)

    @rule(name=some_pod, token=st.integers(1, 3))
    def earlier_call_ends_late(self, name: str, token: int) -> None:
        if self.there(name):
            claim = self.world.claim(name)
            if claim is not None and token not in claim.call_tokens:
                self.world.ledger.assumed_pods.release(claim.pod.uid, token)
                assert self.world.claim(name) is claim

    # ---- decisions, in time and late

    @rule()
    def decide_and_publish(self) -> None:
        self.world.ledger.publish(self.world.decide())
        self.decided = dict(self.asked)

    @rule()
    def decide_only(self) -> None:
        self.old = self.world.decide()
        self.asked_then = dict(self.asked)

    @precondition(lambda self: self.old is not None)
    @rule()
    def publish_late(self) -> None:
        assert self.old is not None
        version = self.old.version
        before = {name: self.world.claim(name) for name in self.world.pods}
        self.world.ledger.publish(self.old)
        for name, claim in before.items():
            if claim is not None and claim.stage.is_fixed and claim.version > version:
                assert self.world.claim(name) == claim
        self.old, self.decided = None, self.asked_then

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    # ---- what always holds

    @invariant()
    def sums_equal_a_recount(self) -> None:
        claims = self.world.ledger.claims
        columns = claims.capacity.columns
        capacity, free = columns.allocatable.copy(), columns.allocatable.copy()
        for claim in claims:
            row = claims.capacity.row(claim.node)
            if row is not None:
                for column, name in enumerate(columns.names):
                    amount = claim.pod.shape.requests.get(name, 0)
                    free[row, column] -= amount
                    capacity[row, column] -= amount * claim.stage.is_fixed
        assert np.array_equal(capacity, columns.capacity)
        assert np.array_equal(free, columns.free)

    @invariant()
    def ports_and_terms_equal_a_recount(self) -> None:
        claims = self.world.ledger.claims
        assumed = [claim for claim in claims if claim.stage.is_fixed]
        occupancy = claims.capacity.occupancy()
        ports = Counter((each.node, port) for each in assumed for port in each.pod.shape.constraints.ports)
        assert ports == {
            (at, port): n for at, taken in occupancy.port_counts.items() for port, n in taken.items() if n
        }
        for term, by_node in occupancy.selected_counts.items():
            ports_held = Counter(
                each.node for each in assumed if term.matches(each.pod.namespace, each.pod.labels)
            )
            assert by_node == ports_held
        for term, by_node in occupancy.carrier_counts.items():
            carriers = [each for each in assumed if term in each.pod.shape.constraints.anti_affinity]
            assert by_node == Counter(carrier.node for carrier in carriers)

    @invariant()
    def queues_add_up(self) -> None:
        snapshot = self.world.ledger.snapshot()
        allocated: Counter[str] = Counter()
        for view in snapshot.groups.values():
            allocated.update(view.allocated)
        offered = {
            name: amount for name, amount in allocated.items() if amount and name in snapshot.dimensions
        }
        assert offered == dict(+Counter(dict(snapshot.queues["default"].allocated)))
        counted = sum(view.is_in_queue for view in snapshot.groups.values())
        assert snapshot.queues["default"].group_count == counted

    @invariant()
    def group_infos_equal_rebuilt_ones(self) -> None:
        ledger = self.world.ledger
        before = ledger.snapshot().groups
        for each in before:
            ledger.registry.mark_dirty(each)
        rebuilt = ledger.snapshot().groups
        assert {name: self.fields(view) for name, view in before.items()} == {
            name: self.fields(view) for name, view in rebuilt.items()
        }

    def fields(self, view: GroupInfo) -> dict[str, Any]:
        """Return the fields; nothing in a running group depends on the time of its start."""
        decision, start = self.world.decisions.groups.get(view.key), view.start
        if decision is not None and decision.verdict is Verdict.RUNNING:
            start = replace(start, admitted_at=None, released_at=None)
        return {**asdict(view), "start": start}

    @invariant()
    def bound_pods_stand_where_they_are(self) -> None:
        for name, each in self.world.pods.items():
            claim, where = self.world.claim(name), each.spec.node_name
            if where and each.status.phase not in ("Succeeded", "Failed"):
                assert claim is not None
                assert (claim.node, claim.stage) == (where, ClaimStage.BOUND)
            else:
                assert claim is None or (claim.stage < ClaimStage.BOUND and not where)

    @invariant()
    def no_claim_outlives_its_pod(self) -> None:
        uids = {Uid(each.metadata.uid) for each in self.world.pods.values()}
        assert {claim.pod.uid for claim in self.world.ledger.claims} <= uids

    @invariant()
    def every_claim_has_an_owner(self) -> None:
        """Find for each claim its owner.

        A decision, the scheduler until its answer expires, a bind call by its token, or the pod itself.
        """
        ledger = self.world.ledger
        expires_at = ledger.snapshot().expires_at
        for claim in ledger.claims:
            match claim.stage:
                case ClaimStage.PLANNED:
                    assert claim.pod.group in ledger.decisions.groups
                case ClaimStage.ANSWERED:
                    assert expires_at is not None
                    assert expires_at <= claim.stage_since + LIMITS.start_deadline
                case ClaimStage.HELD | ClaimStage.POSTED:
                    assert claim.token
                case ClaimStage.BOUND:
                    assert claim.pod.holds_capacity
            assert claim in ledger.claims.in_stage(claim.stage)
        stages = Counter(claim.stage for claim in ledger.claims)
        assert stages == Counter({stage: len(list(ledger.claims.in_stage(stage))) for stage in ClaimStage})

    @invariant()
    def who_stands_is_who_is_placed_or_held(self) -> None:
        for each in self.world.ledger.registry.groups.values():
            standing = {
                uid
                for uid, record in each.pods.items()
                if record.is_placed
                or (
                    record.is_waiting
                    and (claim := self.world.ledger.claims.get(uid))
                    and claim.stage >= ClaimStage.HELD
                )
            }
            assert standing == each.standing_roles.keys()


Events.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=40)
TestEvents = Events.TestCase
