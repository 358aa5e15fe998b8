"""Bindings that the API server refuses for good, as an admission policy does: the start fails at once."""

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from tests.domain.builders import node, pod
from tests.domain.test_phases import running
from tests.domain.world import World, gang, single
from tests.rows import each_of

WORDS = "its binding is refused: site policy"


def refuse(world: World, group: str, *members: str) -> World:
    """Take the plan by the scheduler; the API server refuses the bindings of these members."""
    planned = list(world.plan(group))
    for name in planned:
        world.hold(name, world.plan(group)[name])
    for claim in world.confirm(group).claims_to_post:
        if claim.pod.name in members:
            world.ledger.assumed_pods.record_binding_refused(claim.pod.uid, "refused: site policy")
            world.ledger.assumed_pods.release(Uid(claim.pod.uid), claim.token)
        else:
            world.bind(claim.pod.name, claim.node)
    return world.settle()


@each_of(("g-0",), ("g-0", "g-1"))
def test_the_start_of_a_gang_ends_and_others_have_their_turn(members: tuple[str, ...]) -> None:
    world = World(node("n", cpu="2"), gang("g", 2)).settle()
    world.add(gang("next", 2, created="2027-01-01")).settle()
    refuse(world, "g", *members)
    assert (world.reason("g"), world.detail("g")) == (Reason.BACKING_OFF, WORDS)
    bound = [name for name in ("g-0", "g-1") if name not in members]
    assert list(world.decision("g").undo) == [f"uid-{name}" for name in bound]
    assert world.delete(*bound).settle().verdict("next") is Verdict.STARTING
    if bound:  # the words are not lost with the members that were undone
        detail = f"1 of 2 members exist; its last start failed: {WORDS}"
        assert (world.reason("g"), world.detail("g")) == (Reason.NOT_ENOUGH_MEMBERS, detail)


@each_of(gang("g", 2), pod("g"))
def test_each_refusal_doubles_the_time_until_the_next_try(of: object) -> None:
    world = World(node("n", cpu="2"), of).settle()
    group = "g" if "g-0" in world.pods else single("g")
    waits = []
    for _ in range(3):
        refuse(world, group, *world.pods)
        waits.append(world.decision(group).retry_at - world.now)
        assert world.plan(group) == {}
        world.pass_time(waits[-1] + 0.1)
        assert world.verdict(group) is Verdict.STARTING
    assert waits == [waits[0], 2 * waits[0], 4 * waits[0]]


def test_a_gang_that_runs_keeps_its_members_and_the_next_one_backs_off() -> None:
    world = running(2).delete("g-0").add(pod("g-2", "g")).settle()
    for _ in range(2):
        refuse(world, "g", "g-2")
        assert (world.verdict("g"), world.reason("g")) == (Verdict.RUNNING, Reason.BACKING_OFF)
        assert (world.detail("g"), world.plan("g"), world.decision("g").undo) == (WORDS, {}, ())
        world.pass_time(world.decision("g").retry_at - world.now + 0.1)
        assert world.plan("g") == {"g-2": "n"}
