"""The barrier: a gang's bind calls are held until it is whole, and end together or one by one."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier as StartingLine

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from extender.api.protocol import BindingArgs
from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.verbs import barrier
from extender.verbs.barrier import (
    ABANDONED,
    BOUND_ELSEWHERE,
    NODE_TAKEN,
    POD_GONE,
    START_ENDED,
    STOPPING,
    SUPERSEDED,
    TOO_LATE,
)
from tests.domain.builders import NAMESPACE, foreign_pod, group, node, pod
from tests.domain.world import gang, names, nodes
from tests.rows import each_of
from tests.verbs.stage import PATIENCE, Patient, Stage, started


def gang_of_three(min_member: int | None = None, size: int = 3) -> Stage:
    """Return a gang with a node for each member, and two nodes to spare."""
    return Stage(nodes("a", "b", "c", "d", "e", cpu="1"), gang("g", size, min_member=min_member))


def releases() -> float:
    return REGISTRY.get_sample_value("muster_barrier_releases_total") or 0.0


# ---- whole


def test_a_held_call_counts_as_a_sign_of_the_scheduler() -> None:
    """Count a held call as a sign of the scheduler: it has a reason not to ask about a member."""
    with gang_of_three().calls() as stage:
        call = stage.held_call("g-0")
        stage.now += 100.0
        asked_before = stage.ledger.snapshot().attention.asked_at
        stage.barrier.sweep()
        assert stage.ledger.snapshot().attention.asked_at == stage.now > asked_before
        stage.barrier.stop()
        assert call.result(PATIENCE) == STOPPING


def test_a_gang_is_held_until_it_is_complete_and_then_posted_at_once_to_the_nodes_of_its_calls() -> None:
    with gang_of_three().calls() as stage:
        asked = {name: stage.filtered(name)[0] for name in names("g", 3)}
        calls = [stage.held_call("g-0", asked["g-0"]), stage.held_call("g-1", asked["g-1"])]
        assert stage.posted == []
        assert {hold.pod.name for hold in stage.barrier.held_calls()} == {"g-0", "g-1"}
        assert started(*calls, stage.call("g-2", asked["g-2"])) == ["", "", ""]
        assert stage.posted_pods == ["g-0", "g-1", "g-2"]
        assert {hold.pod.name: hold.node for hold in stage.posted} == asked
        assert stage.barrier.held_calls() == []
        assert stage.barrier._calls_by_group == {}


def test_many_calls_at_the_same_time_post_every_member_once() -> None:
    size = 40
    with Stage(nodes(*map(str, range(10))), gang("g", size)).calls() as stage:
        before = releases()
        nodes_of = {name: stage.filtered(name)[0] for name in names("g", size)}
        assert started(*[stage.call(name, node) for name, node in nodes_of.items()]) == [""] * size
        assert stage.posted_pods == sorted(names("g", size))
        assert releases() - before == 1


def test_roles_must_be_complete_too() -> None:
    members = [pod(name, "g", role=name[0]) for name in ("w0", "w1", "p0")]
    with Stage(nodes("a", "b"), group("g", 2, roles={"w": 1, "p": 1}), members).calls() as stage:
        calls = [stage.held_call("w0")]
        if "w1" in stage.plan("g"):
            calls.append(stage.held_call("w1"))
        assert stage.posted == []
        assert started(*calls, stage.call("p0")) == [""] * (len(calls) + 1)


def test_a_replacement_in_a_fully_running_gang_passes_at_once() -> None:
    with gang_of_three().calls() as stage:
        started(*[stage.call(name) for name in names("g", 3)])
        stage.run(*names("g", 3)).settle()
        stage.delete("g-1").add(pod("g-new", "g")).settle()
        assert started(stage.call("g-new")) == [""]


def test_gangs_do_not_wait_for_each_other() -> None:
    with Stage(nodes("a", "b"), gang("g", 2), gang("h", 2)).calls() as stage:
        waiting = stage.held_call("g-0")
        assert started(stage.held_call("h-0"), stage.call("h-1")) == ["", ""]
        assert not waiting.done()
        assert stage.posted_pods == ["h-0", "h-1"]


# ---- calls that are repeated


def test_a_second_call_for_a_pod_replaces_the_first() -> None:
    with gang_of_three().calls() as stage:
        first = stage.held_call("g-0")
        second = stage.call("g-0")
        assert started(first) == [SUPERSEDED]
        assert stage.stage("g-0") is ClaimStage.HELD
        assert started(stage.held_call("g-1"), stage.call("g-2"), second) == ["", "", ""]
        assert stage.posted_pods == ["g-0", "g-1", "g-2"]


def test_a_second_call_to_another_node_moves_the_assumed_pod() -> None:
    with gang_of_three().calls() as stage:
        first = stage.held_call("g-0")
        (other,) = stage.filtered("g-0", ["e"])
        second = stage.call("g-0", other)
        assert started(first) == [SUPERSEDED]
        assert started(stage.held_call("g-1"), stage.call("g-2"), second) == ["", "", ""]
        assert {hold.node for hold in stage.posted if hold.pod.name == "g-0"} == {"e"}


def test_a_refused_second_call_leaves_the_first_with_its_assumed_pod() -> None:
    with gang_of_three().calls() as stage:
        first, taken = stage.held_call("g-0"), stage.plan("g")["g-1"]
        assert started(stage.call("g-0", taken)) == [f"{REFUSAL_PREFIX}{Reason.NO_ROOM}"]
        assert not first.done()
        assert started(stage.held_call("g-1"), stage.call("g-2"), first) == ["", "", ""]
        assert stage.posted_pods == ["g-0", "g-1", "g-2"]


def test_a_posting_that_fails_after_a_refused_second_call_still_frees_its_capacity() -> None:
    with Stage(nodes("a", "b"), pod("p"), withholds=True).calls() as stage:
        first = stage.call("p", "a")
        stage.wait_for(lambda: len(stage.posted) == 1)
        assert started(stage.call("p", "b")) == [f"{REFUSAL_PREFIX}{Reason.NO_ROOM}"]
        assert stage.stage("p") is ClaimStage.POSTED
        (hold,) = stage.posted
        stage.barrier.release(hold)
        hold.finish("no")
        assert started(first) == ["no"]
        assert stage.stage("p") is None


def test_a_failed_posting_does_not_free_the_capacity_of_a_newer_call() -> None:
    with Stage(node("a"), pod("p"), withholds=True).calls() as stage:
        first = stage.call("p")
        stage.wait_for(lambda: len(stage.posted) == 1)
        second = stage.call("p", "a")
        stage.wait_for(lambda: len(stage.posted) == 2)
        old, new = stage.posted
        stage.barrier.release(old)
        old.finish("no")
        assert started(first) == ["no"]
        assert stage.stage("p") is ClaimStage.POSTED
        new.finish("")
        assert started(second) == [""]


# ---- callers that hang up


def test_no_member_is_posted_when_a_caller_is_gone() -> None:
    with gang_of_three().calls() as stage:
        caller = Patient()
        gone, patient = stage.held_call("g-0", caller=caller), stage.held_call("g-1")
        caller.hung_up = True
        last = stage.held_call("g-2")
        assert started(gone) == [ABANDONED]
        assert stage.posted == []
        assert stage.claim("g-0") is None
        assert [patient.done(), last.done()] == [False, False]


def test_a_gone_caller_does_not_delay_members_that_no_longer_need_it() -> None:
    with gang_of_three(min_member=2).calls() as stage:
        first, second = list(stage.plan("g"))
        caller = Patient()
        started(stage.held_call(first), stage.call(second))
        stage.run(first, second).settle()
        (third,) = stage.plan("g")
        stage.filtered(third)
        caller.hung_up = True
        assert started(stage.call(third, caller=caller)) == [ABANDONED]
        assert stage.posted_pods == sorted([first, second])


def test_a_hung_up_caller_is_noticed_without_any_other_event() -> None:
    with gang_of_three().calls() as stage:
        caller = Patient()
        call = stage.held_call("g-0", caller=caller)
        stage.barrier.on_decisions(stage.decisions)
        assert not call.done()
        caller.hung_up = True
        stage.advance(1)
        stage.barrier.on_decisions(stage.decisions)
        assert started(call) == [ABANDONED]
        assert stage.claim("g-0") is None


def test_a_gang_that_lost_a_caller_starts_once_the_caller_is_back() -> None:
    with gang_of_three().calls() as stage:
        caller = Patient()
        gone, other = stage.held_call("g-0", caller=caller), stage.held_call("g-1")
        caller.hung_up = True
        last = stage.held_call("g-2")
        assert started(gone) == [ABANDONED]
        stage.settle()
        assert started(stage.call("g-0"), other, last) == ["", "", ""]
        assert stage.posted_pods == ["g-0", "g-1", "g-2"]


def test_a_cancelled_call_frees_its_capacity_at_once() -> None:
    stage = gang_of_three()
    node_of_it = stage.filtered("g-0")[0]

    async def hang_up() -> None:
        args = BindingArgs("g-0", NAMESPACE, stage.uid("g-0"), node_of_it)
        call = asyncio.create_task(stage.verbs.bind(args, Patient()))
        await asyncio.sleep(0)
        assert [hold.pod.name for hold in stage.barrier.held_calls()] == ["g-0"]
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(hang_up())
    assert (stage.claim("g-0"), stage.barrier.held_calls(), stage.posted) == (None, [], [])


def test_a_cancelled_call_that_is_being_posted_leaves_its_capacity_to_the_posting() -> None:
    stage = Stage(node("a"), pod("p"), withholds=True)

    async def hang_up() -> None:
        call = asyncio.create_task(stage.verbs.bind(BindingArgs("p", NAMESPACE, "uid-p", "a"), Patient()))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(hang_up())
    (hold,) = stage.posted
    assert (stage.stage("p"), stage.barrier.held_calls()) == (ClaimStage.POSTED, [])
    stage.barrier.release(hold)
    hold.finish("no")
    assert stage.stage("p") is None


# ---- the world moves on


def test_a_pod_deleted_while_held_ends_only_its_own_call() -> None:
    with gang_of_three().calls() as stage:
        deleted, other = stage.held_call("g-0"), stage.held_call("g-1")
        stage.delete("g-0")
        stage.barrier.sweep()
        assert started(deleted) == [POD_GONE]
        assert not other.done()
        stage.add(pod("g-new", "g")).settle()
        assert started(stage.held_call("g-2"), stage.call("g-new"), other) == ["", "", ""]


@each_of(("a", ""), ("e", BOUND_ELSEWHERE))
def test_a_pod_that_was_bound_elsewhere_ends_its_call(bound_to: str, verdict: str) -> None:
    with gang_of_three().calls() as stage:
        stage.filtered("g-0", ["a"])
        call = stage.held_call("g-0", "a")
        stage.bind("g-0", bound_to)
        stage.barrier.sweep()
        assert started(call) == [verdict]
        assert stage.stage("g-0") is ClaimStage.BOUND


def test_a_node_that_became_full_fails_only_its_member() -> None:
    with gang_of_three().calls() as stage:
        unlucky, other = stage.held_call("g-0"), stage.held_call("g-1")
        claim = stage.claim("g-0")
        assert claim is not None
        stage.add(foreign_pod("s", on=claim.node))
        last = stage.held_call("g-2")
        assert started(unlucky) == [NODE_TAKEN]
        assert stage.posted == []
        assert [other.done(), last.done()] == [False, False]
        assert stage.settle().verdict("g") is Verdict.STARTING
        assert stage.plan("g")["g-0"] != claim.node
        assert started(stage.call("g-0"), other, last) == ["", "", ""]


def test_a_start_that_is_given_up_ends_all_its_calls_and_frees_their_capacity() -> None:
    with gang_of_three().calls() as stage:
        calls = [stage.held_call("g-0"), stage.held_call("g-1")]
        stage.advance(1000).settle()
        assert stage.reason("g") is Reason.BACKING_OFF
        with capture_logs() as logs:
            stage.barrier.on_decisions(stage.decisions)
        assert started(*calls) == [START_ENDED, START_ENDED]
        assert [(line["group"], line["reason"], line["held"]) for line in logs] == [
            ("team/g", Reason.BACKING_OFF, 2)
        ]
        assert [stage.claim(name) for name in names("g", 3)] == [None, None, None]


def test_a_group_without_a_decision_holds_no_call() -> None:
    with gang_of_three().calls() as stage:
        call = stage.held_call("g-0")
        others = {key: each for key, each in stage.decisions.groups.items() if key != "team/g"}
        stage.barrier.on_decisions(type(stage.decisions)(groups=others))
        assert started(call) == [START_ENDED]


def test_a_gang_that_became_complete_without_another_call_is_posted() -> None:
    with gang_of_three().calls() as stage:
        calls = [stage.held_call("g-0"), stage.held_call("g-1")]
        stage.add(group("g", 2))
        stage.settle()
        stage.barrier.on_decisions(stage.decisions)
        assert started(*calls) == ["", ""]


def test_a_group_that_makes_it_raise_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with Stage(nodes("a", "b"), gang("g", 2), gang("h", 2)).calls() as stage:
        calls = [stage.held_call("g-0"), stage.held_call("h-0")]
        stage.add(group("h", 1)).settle()
        asked = stage.ledger.groups.is_quorate

        def is_quorate(key: GroupKey) -> bool:
            return asked(key) if key == "team/h" else [True][1]

        monkeypatch.setattr(stage.ledger.groups, "is_quorate", is_quorate)
        with capture_logs() as logs:
            stage.barrier.on_decisions(stage.decisions)
        assert started(calls[1]) == [""]
        assert {(line["log_level"], line["group"]) for line in logs} == {("error", "team/g")}


def test_a_connection_that_raises_hides_no_other_hang_up() -> None:
    class Broken(Patient):
        def has_hung_up(self) -> bool:
            return [self.hung_up][1]

    with gang_of_three().calls() as stage:
        left = Patient()
        stage.held_call("g-0", caller=Broken())
        gone = stage.held_call("g-1", caller=left)
        left.hung_up = True
        with capture_logs():
            stage.barrier.sweep()
        assert started(gone) == [ABANDONED]


# ---- time, and the end


def test_a_call_that_waited_too_long_is_answered_and_its_capacity_is_free() -> None:
    stage = Stage(nodes("a", "b", cpu="1"), gang("g", 2), longest_hold=0)
    with stage.calls():
        assert started(stage.call("g-0")) == [TOO_LATE]
        assert stage.claim("g-0") is None
        assert stage.barrier.held_calls() == []


def test_a_posting_under_way_is_waited_for_beyond_the_deadline() -> None:
    stage = Stage(node("a"), pod("p"), longest_hold=0, withholds=True)
    with stage.calls():
        call = stage.call("p")
        stage.wait_for(lambda: len(stage.posted) == 1)
        stage.posted[0].finish("")
        assert started(call) == [""]


def test_a_posting_that_outlasts_its_call_still_frees_its_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(barrier, "LAST_TIMEOUT", 0.0)
    with Stage(node("a"), pod("p"), longest_hold=0, withholds=True).calls() as stage:
        assert started(stage.call("p")) == [TOO_LATE]
        (hold,) = stage.posted
        assert (stage.stage("p"), stage.barrier.held_calls()) == (ClaimStage.POSTED, [])
        stage.barrier.release(hold)
        assert stage.stage("p") is None


def test_a_call_that_raises_leaves_no_assumed_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    with gang_of_three().calls() as stage:
        monkeypatch.setattr(stage.barrier, "advance", lambda group: [][0])
        call = stage.call("g-0")
        with pytest.raises(IndexError):
            call.result(PATIENCE)
        assert (stage.claim("g-0"), stage.barrier.held_calls()) == (None, [])


def test_an_assumed_pod_without_a_call_is_not_posted() -> None:
    with Stage(node("a"), pod("p")).calls() as stage:
        stage.filtered("p")
        stage.hold("p", "a")
        stage.barrier.advance(GroupKey("team/pod:p"))
        assert (stage.stage("p"), stage.posted) == (None, [])


def test_the_barrier_works_while_an_api_server_hangs() -> None:
    """Postings are under way and do not end: no other call waits for them."""
    with Stage(nodes("a", "b"), gang("g", 2), pod("p"), withholds=True).calls() as stage:
        calls = [stage.held_call("g-0"), stage.call("g-1")]
        stage.wait_for(lambda: len(stage.posted) == 2)
        last = stage.call("p")
        stage.wait_for(lambda: len(stage.posted) == 3)
        assert len(stage.barrier.held_calls()) == 3
        for hold in stage.posted:
            hold.finish("")
        assert started(*calls, last) == ["", "", ""]


def test_stopping_answers_all_held_calls_and_refuses_later_ones() -> None:
    with gang_of_three().calls() as stage:
        calls = [stage.held_call("g-0"), stage.held_call("g-1")]
        stage.barrier.stop()
        assert started(*calls) == [STOPPING, STOPPING]
        assert started(stage.call("g-2")) == [STOPPING]
        assert (stage.barrier.held_calls(), stage.posted) == ([], [])


def test_the_number_of_held_calls_is_shown() -> None:
    with gang_of_three().calls() as stage:
        call = stage.held_call("g-0")
        assert REGISTRY.get_sample_value("muster_held_binds") == 1
        stage.barrier.stop()
        started(call)
        assert REGISTRY.get_sample_value("muster_held_binds") == 0


# ---- races


def test_each_pod_is_either_posted_or_refused() -> None:
    """Give up a start at the very time at which its last member arrives."""
    for _ in range(30):
        _give_up_while_the_last_member_arrives(gang_of_three())


def _give_up_while_the_last_member_arrives(stage: Stage) -> None:
    with stage.calls():
        calls = [stage.held_call("g-0"), stage.held_call("g-1")]
        node_of_last, ended = stage.filtered("g-2")[0], stage.decide()
        waiting = {
            key: type(each)(key, each.queue, Verdict.WAITING, Reason.BACKING_OFF, failed="test")
            for key, each in ended.groups.items()
        }
        line = StartingLine(2)
        with ThreadPoolExecutor(1) as other:

            def give_up() -> None:
                line.wait(PATIENCE)
                stage.barrier.on_decisions(type(ended)(ended.version, waiting))

            giving_up = other.submit(give_up)
            line.wait(PATIENCE)
            calls.append(stage.call("g-2", node_of_last))
            giving_up.result(PATIENCE)
        stage.barrier.stop()
        answers = dict(zip(names("g", 3), started(*calls), strict=True))
        assert stage.posted_pods in ([], list(answers))
        assert [name for name, error in answers.items() if not error] == stage.posted_pods
        for name, error in answers.items():
            assert (stage.stage(name) is ClaimStage.BOUND) == (not error)


def test_a_hold_is_posted_at_most_once_by_concurrent_callers() -> None:
    with gang_of_three(min_member=2).calls() as stage:
        first, second = list(stage.plan("g"))
        calls = [stage.held_call(first)]
        line = StartingLine(4)

        def ask() -> None:
            line.wait(PATIENCE)
            stage.barrier.on_decisions(stage.decisions)

        with ThreadPoolExecutor(3) as others:
            asking = [others.submit(ask) for _ in range(3)]
            line.wait(PATIENCE)
            calls.append(stage.call(second))
            for each in asking:
                each.result(PATIENCE)
        assert started(*calls) == ["", ""]
        assert stage.posted_pods == sorted([first, second])
