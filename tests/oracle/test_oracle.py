"""Decisions of decide() against the oracle, on random small clusters.

Compared are what queues deserve, which groups may start, and whether each reason is true. `make nightly`
tries 10,000.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.keys import DEFAULT_QUEUE
from extender.domain.explain.explain import explain_group
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions
from tests.domain.world import key
from tests.oracle import changes, evictions
from tests.oracle.admission import Replay, Shares, Turn, obstacle
from tests.oracle.growth import Growth
from tests.oracle.placement import Node, Pod, fit, free_capacity, most_that_fit
from tests.oracle.reasons import CONDITIONS
from tests.oracle.states import Group, State
from tests.oracle.strategies import growing, nodes, pods, states
from tests.property_examples import TIMES, examples

MANY = settings(max_examples=examples(150) if TIMES <= 1 else max(examples(150), 10_000))
DEFAULT_EXAMPLES = settings(max_examples=examples(60))
# Reasons that were true of a group when its turn came, by its queue and the members that it needs.
# Equal groups repeat them within a cycle, also if capacity is then reclaimed for the first; the next cycle,
# which follows each start, evaluates them again.
CAPACITY_REASONS = (Reason.NO_ROOM, Reason.FRAGMENTED, Reason.QUEUE_SHARE, Reason.QUEUE_CEILING)
Known = dict[tuple[object, ...], set[Reason]]
FEWER_EXAMPLES = settings(max_examples=examples(40))  # each change is tried out by several decisions


@MANY
@given(states())
def test_decisions_follow_the_documented_rules(state: State) -> None:
    decisions = decide(state.world().ledger.snapshot())
    assert not list(untrue(state, decisions)), "these sentences are not true"


def untrue(state: State, decisions: Decisions) -> Iterator[str]:
    replay = Replay(state, decisions)
    yield from _of_shares(state, replay.shares, decisions)
    for group in state.groups:
        decision = decisions.groups[key(group.name)]
        if not group.nodes and (obstacles := obstacle(state, group)) and decision.reason not in obstacles:
            yield f"{group.name} waits for {decision.reason}, and not for any of {sorted(obstacles)}"
    known = Known()
    for turn in replay:
        yield from _of_turn(turn, known)
        if turn.decision.verdict is Verdict.STARTING and not turn.may_start:
            return  # all that comes after it is another story
    yield from evictions.violated_rules(replay, decisions)


@DEFAULT_EXAMPLES
@given(growing())
def test_members_that_are_not_needed_start_in_the_order_of_shares(state: State) -> None:
    decisions = decide(state.world().ledger.snapshot())
    replay = Replay(state, decisions)
    assert not list(_of_shares(state, replay.shares, decisions)), "these sentences are not true"
    known = Known()
    assert not [text for turn in replay for text in _of_turn(turn, known)], "these sentences are not true"
    assert not list(Growth(state, replay).violated_rules()), "these sentences are not true"


def _of_shares(state: State, shares: Shares, decisions: Decisions) -> Iterator[str]:
    for queue in filter(shares.queues.takes_part, (queue.name for queue in state.queues)):
        for resource, parts in shares.parts.items():
            reported = decisions.queues[queue].deserved.get(resource, 0.0)
            if reported != pytest.approx(float(parts[queue].deserved), abs=1e-4):
                yield f"queue {queue} deserves {reported} of {resource}, and not {parts[queue].deserved}"


def _of_turn(turn: Turn, known: Known) -> Iterator[str]:
    group, decision = turn.group, turn.decision
    said = f"{decision.reason} ({decision.detail})"
    starts = decision.verdict is Verdict.STARTING
    if starts and not turn.may_start:
        yield f"{group.name} may start"
    elif starts:
        yield from _of_plan(turn)
    elif turn.may_start and not (turn.lends and turn.claimants):
        yield f"{group.name} may not start: {said}"
    if starts:
        return
    of_equals = known.setdefault((group.queue, tuple(sorted(group.pods[: group.needed]))), set())
    if decision.reason is not None and CONDITIONS[decision.reason](turn):
        of_equals.update(each for each in (decision.reason, *CAPACITY_REASONS) if CONDITIONS[each](turn))
    elif decision.reason not in of_equals:
        yield f"{group.name} waits for {said}"


def _of_plan(turn: Turn) -> Iterator[str]:
    group, by_name = turn.group, {node.name: node for node in turn.state.nodes}
    plan = [(group.pods[int(uid.rpartition("-")[2])], node) for uid, node in turn.decision.plan.items()]
    capacity = free_capacity(turn.state.nodes, [*turn.state.placed_pods, *plan])
    if len(plan) != group.needed:
        yield f"{group.name} starts whole"
    if any(capacity[by_name[node]][name] < 0 for pod, node in plan for name, _ in pod.requests):
        yield f"{group.name} fits on its nodes"
    if not all(pod.suits(by_name[node]) for pod, node in plan):
        yield f"the nodes of {group.name} suit its members"
    if turn.lends and turn.claimants:
        pods = turn.claimants[0].pods[: turn.claimants[0].needed]
        if most_that_fit(pods, capacity) < most_that_fit(pods, turn.capacity):
            yield f"capacity that {turn.claimants[0].name} claims is not borrowed by {group.name}"


@FEWER_EXAMPLES
@given(states())
def test_only_time_has_to_pass_after_a_start_that_failed(state: State) -> None:
    tried = state._replace(groups=tuple(group._replace(retry_in=0.0) for group in state.groups))
    later = (each.world().advance(3.5).decide() for each in (state, tried))
    one, other = (
        {key: (decision.verdict, decision.reason, decision.plan) for key, decision in each.groups.items()}
        for each in later
    )
    assert one == other


@FEWER_EXAMPLES
@given(states())
def test_the_smallest_change_starts_a_group_and_less_does_not(state: State) -> None:
    decisions = decide(state.world().ledger.snapshot())
    for group in state.groups:
        why, decision = explain_group(decisions, key(group.name)), decisions.groups[key(group.name)]
        change = None if why is None else why.change
        if change is None or (made := changes.changed_state(state, group, change, decision.reclaim)) is None:
            continue
        then = decide(made.after.world().ledger.snapshot()).groups[key(group.name)]
        outcome = "" if then.verdict is Verdict.STARTING else str(then.reason)
        assert outcome == change.then, f"{group.name}: {change.sentence}"
        if not change.then:
            for less in made.smaller:
                then = decide(less.world().ledger.snapshot()).groups[key(group.name)]
                assert then.verdict is Verdict.WAITING, f"{group.name}, with less: {change.sentence}"


@given(st.lists(nodes("n"), min_size=1, max_size=4), st.lists(pods(), min_size=2, max_size=2), st.data())
def test_two_shapes_are_placed_if_any_placement_exists(
    there: list[Node], two: list[Pod], data: st.DataObject
) -> None:
    counts = [data.draw(st.integers(1, 4)) for _ in two]
    members = tuple(pod for pod, n in zip(two, counts, strict=True) for _ in range(n))
    named = tuple(node._replace(name=f"n{n}") for n, node in enumerate(there))
    state = State(named, (), (Group("g", DEFAULT_QUEUE, len(members), members),))
    decision = decide(state.world().ledger.snapshot()).groups[key("g")]
    assert (decision.verdict is Verdict.STARTING) == fit(members, free_capacity(named, ()))
