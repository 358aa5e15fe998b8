"""The life of a claim: every event that is allowed at each stage, and the stage that follows."""

from collections.abc import Callable

import pytest

from extender.domain.ledger.claims import ClaimEvent, ClaimStage, allows, next_stage
from extender.domain.model.reasons import Reason
from tests.domain.builders import pod
from tests.domain.world import LIMITS, World, gang, nodes
from tests.rows import each_of

PLANNED, ANSWERED, HELD, POSTED, BOUND = ClaimStage
LATE = LIMITS.start_deadline + 1


def world_at(stage: ClaimStage) -> World:
    """Return a world with a replacement's claim at this stage, in a group that is whole."""
    world = World(nodes("a", "b"), gang("g", 2)).start("g")
    world.delete("g-1").add(pod("g-new", "g")).settle().ungate("g-new")
    steps: dict[ClaimStage, Callable[[], object]] = {
        ANSWERED: lambda: world.answer("g-new", ["a"]),
        HELD: lambda: world.hold("g-new", "a"),
        POSTED: lambda: world.confirm("g"),
        BOUND: lambda: world.bind("g-new", "a"),
    }
    for reached, step in steps.items():
        if reached <= stage:
            step()
    assert world.stage("g-new") is stage
    return world


@each_of(*ClaimStage)
def test_every_stage_is_reached_and_every_claim_ends(stage: ClaimStage) -> None:
    assert allows(ClaimEvent.LEAVE, stage)
    assert world_at(stage).delete("g-new").ledger.claims.get(pod("g-new").metadata.uid) is None  # type: ignore[arg-type]


@each_of(*ClaimStage)
def test_a_pod_that_the_watch_shows_on_a_node_is_bound(stage: ClaimStage) -> None:
    world = world_at(stage)
    world.bind("g-new", "b")
    claim = world.claim("g-new")
    assert claim is not None
    assert (claim.stage, claim.node) == (next_stage(ClaimEvent.BIND, stage), "b")


@each_of(*ClaimStage)
def test_filter_answers_with_the_node_of_a_claim_where_its_stage_binds_it(stage: ClaimStage) -> None:
    """Offer a node other than the claim's; a claim whose binding may have taken effect stays on its node."""
    world = world_at(stage)
    answer = world.answer("g-new", ["b"])
    if allows(ClaimEvent.ANSWER, stage):
        assert (answer, world.stage("g-new")) == (["b"], next_stage(ClaimEvent.ANSWER, stage))
    else:
        assert (answer, world.stage("g-new")) == (Reason.NO_ROOM, stage)


@each_of(*ClaimStage)
def test_a_bind_call_holds_a_claim_where_its_stage_allows_that(stage: ClaimStage) -> None:
    world, may = world_at(stage), allows(ClaimEvent.HOLD, stage)
    before = world.claim("g-new")
    refused = world.hold("g-new", "a")
    claim = world.claim("g-new")
    assert claim is not None
    assert before is not None
    assert (refused is None, claim.stage) == (may, next_stage(ClaimEvent.HOLD, stage) if may else stage)
    assert (claim.token != before.token) == may


@each_of(*ClaimStage)
def test_the_end_of_a_call_releases_a_claim_where_its_stage_allows_that(stage: ClaimStage) -> None:
    world = world_at(stage)
    world.release("g-new")
    assert world.stage("g-new") is (None if allows(ClaimEvent.RELEASE, stage) else stage)


@each_of(*ClaimStage)
def test_the_end_of_an_older_call_changes_no_claim(stage: ClaimStage) -> None:
    world = world_at(stage)
    claim = world.claim("g-new")
    assert claim is not None
    world.ledger.assumed_pods.release(claim.pod.uid, claim.token + 1)
    assert world.claim("g-new") is claim


@each_of(*ClaimStage)
def test_a_refusal_changes_a_claim_where_its_stage_allows_that(stage: ClaimStage) -> None:
    world = world_at(stage)
    world.refuse("g-new")
    expected = next_stage(ClaimEvent.REFUSE, stage) if allows(ClaimEvent.REFUSE, stage) else stage
    assert world.stage("g-new") is expected


@each_of(*ClaimStage)
def test_time_expires_a_claim_where_its_stage_allows_that(stage: ClaimStage) -> None:
    """The next snapshot sees it, before the next decision."""
    world = world_at(stage).advance(LATE)
    world.ledger.snapshot()
    assert world.stage("g-new") is (None if allows(ClaimEvent.EXPIRE, stage) else stage)


@each_of(*ClaimStage)
def test_a_decision_without_a_node_drops_a_claim_where_its_stage_allows_that(stage: ClaimStage) -> None:
    """The PodGroup is gone and no member is left on a node: members without a held call have no claim."""
    world = world_at(stage)
    world.delete("g-0")
    world.ledger.intake.drop_group(world.decision("g").key)
    world.ledger.publish(world.decide())
    if stage is BOUND:
        assert world.stage("g-new") is BOUND
    else:
        assert world.stage("g-new") is (None if allows(ClaimEvent.WITHDRAW, stage) else stage)


def test_a_forbidden_transition_is_an_error() -> None:
    assert not allows(ClaimEvent.POST, ANSWERED)
    with pytest.raises(KeyError):
        next_stage(ClaimEvent.POST, ANSWERED)
