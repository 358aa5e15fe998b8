"""Marks on PodGroups: valid on their own object only, and if the API server lets only Muster write them."""

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Condition
from extender.api.objects.queues import PluginsPodGroup, PodGroup, PodGroupSpec
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.wire_records import recorded_members, whole_condition, whole_members, whole_record
from tests.domain.builders import group, pod, queue
from tests.domain.world import World, gang, key, nodes
from tests.rows import each_of


def seeded(recorded: PodGroup, records_trusted: bool) -> World:
    """Return a world with a group of 32 on 4 cpus, of which one pod was created with a node name."""
    members = [pod(f"g-{n}", "g") for n in range(1, 32)]
    return World(nodes("a"), recorded, pod("g-0", "g", on="a"), members, records_trusted=records_trusted)


@each_of((True, True), (False, False))
def test_a_record_of_a_full_run_counts_only_where_the_policy_protects_it(
    records_trusted: bool, believed: bool
) -> None:
    assert seeded(group("g", 32, stood_whole=True), records_trusted).stood_whole("g") is believed


@each_of(
    Condition(keys.STOOD_WHOLE, "True", "AllMembersStarted"),
    whole_condition("uid-of-another", 1),
    replace(whole_condition("uid-g", 1), status="False"),
    Condition(keys.STOOD_WHOLE, "True", message="all members that it needs ran at the same time: x/uid-g"),
)
def test_a_condition_that_names_another_object_says_nothing(forged: Condition) -> None:
    plain = group("g", 32)
    flagged = replace(plain, status=replace(plain.status, conditions=[forged]))
    assert whole_members(forged, "uid-g") is None
    assert not seeded(flagged, records_trusted=True).stood_whole("g")


def test_a_record_that_names_another_object_does_not_count() -> None:
    meta = replace(group("g", 1).metadata, annotations=whole_record("uid-g", 3))
    assert recorded_members(meta) == whole_members(whole_condition("uid-g", 3), "uid-g") == 3
    assert recorded_members(replace(meta, uid="copy")) is None
    for record in ("true", "uid-g", "/uid-g", "-1/uid-g", "99999999999/uid-g", "²/uid-g"):
        assert recorded_members(replace(meta, annotations={keys.STOOD_WHOLE_NOTE: record})) is None
    assert recorded_members(replace(meta, uid="", annotations={keys.STOOD_WHOLE_NOTE: "3/"})) is None


def test_observed_full_runs_stay_known_when_records_are_not_protected_any_more() -> None:
    world = World(nodes("a"), group("g", 1), pod("g-0", "g", on="a"), records_trusted=False)
    assert world.stood_whole("g")
    world.ledger.intake.trust_markers(True)
    world.ledger.intake.trust_markers(False)
    assert world.stood_whole("g")


def test_records_count_once_they_are_protected() -> None:
    world = seeded(group("g", 32, stood_whole=True), records_trusted=False)
    assert not world.stood_whole("g")
    version = world.ledger.version
    world.ledger.intake.trust_markers(True)
    assert world.ledger.version > version
    assert world.stood_whole("g")


# ---- that a start was admitted

FORGED_PHASE = group("g", 4, "q", phase="Inqueue", created="2026-01-02")
FORGED_COPY = replace(
    FORGED_PHASE, metadata=replace(FORGED_PHASE.metadata, annotations={keys.ADMITTED: "uid-of-another"})
)
OF_OTHERS = PluginsPodGroup(replace(FORGED_PHASE.metadata, annotations={keys.QUEUE: "q"}), PodGroupSpec(4))
NOTED = group("g", 4, "q", admitted=True, created="2026-01-02")
NOTED_OF_OTHERS = replace(
    OF_OTHERS,
    metadata=replace(OF_OTHERS.metadata, annotations={keys.ADMITTED: "uid-g", keys.QUEUE: "q"}),
)


@each_of(
    (FORGED_PHASE, True, False),
    (FORGED_COPY, True, False),
    (OF_OTHERS, True, False),
    (NOTED, False, False),
    (NOTED, True, True),
    (NOTED_OF_OTHERS, True, True),
)
def test_only_a_recorded_start_continues_ahead_of_others(
    given: PodGroup | PluginsPodGroup, records_trusted: bool, resumed: bool
) -> None:
    """One of its members is on a node when Muster starts; an older gang waits for the capacity."""
    older = gang("older", 6, queue="q", created="2026-01-01")
    members = [pod(f"g-{n}", "g", queue="q") for n in range(1, 4)]
    world = World(nodes("a", cpu="8"), queue("q"), older, given, members, records_trusted=records_trusted)
    world.add(pod("g-0", "g", queue="q", on="a", phase="Pending")).settle()
    expected = [Verdict.WAITING, Verdict.STARTING] if resumed else [Verdict.STARTING, Verdict.WAITING]
    assert world.verdicts("older", "g") == expected


def test_without_the_policy_members_left_by_a_crash_are_completed_or_undone() -> None:
    def left(cpu: str) -> World:
        members = [pod("g-0", "g", queue="q", on="a", phase="Pending"), pod("g-1", "g", queue="q")]
        recorded = group("g", 2, "q", admitted=True)
        return World(nodes("a", cpu=cpu), queue("q"), recorded, members, records_trusted=False).settle()

    assert left("2").plan("g") == {"g-1": "a"}
    world = left("1")
    assert (world.verdict("g"), world.decision("g").undo) == (Verdict.WAITING, ())
    world.pass_time(world.ledger.limits.deadline(2) + 1.0)
    assert world.decision("g").undo == ("uid-g-0",)


def test_a_start_that_was_whole_at_a_restart_is_completed_when_a_member_is_refused() -> None:
    """All members were bound, but none ran yet: the older gang still comes after it."""
    members = [pod(f"g-{n}", "g", queue="q", on="a", phase="Pending") for n in range(2)]
    world = World(nodes("a", cpu="2"), queue("q"), group("g", 2, "q", admitted=True), members).settle()
    assert world.verdict("g") is Verdict.RUNNING
    world.add(gang("older", 1, queue="q", created="2026-01-01"))
    world.delete("g-1").add(pod("g-2", "g", queue="q")).settle()
    assert world.plan("g") == {"g-2": "a"}


# ---- which queue took a group in


def orphans(world: World) -> list[str]:
    return [orphan.name for orphan in world.settle().decisions.orphans]


def forged(records_trusted: bool) -> World:
    """Return a world with a group whose note names a queue that this process has never seen."""
    recorded = group("g", 1, "q", queue_uid="uid-of-no-queue")
    return World(nodes("a"), queue("q"), recorded, pod("g-0", "g"), records_trusted=records_trusted)


def test_a_forged_queue_record_deletes_no_group() -> None:
    assert orphans(forged(records_trusted=False)) == []
    assert orphans(forged(records_trusted=True)) == ["g"]


def test_a_group_with_a_forged_queue_record_continues() -> None:
    assert forged(records_trusted=False).settle().plan("g") == {"g-0": "a"}


def test_a_queue_that_was_seen_takes_its_groups_with_it_all_the_same() -> None:
    recorded = group("g", 1, "q", queue_uid="uid-q")
    world = World(nodes("a"), queue("q"), recorded, pod("g-0", "g"), records_trusted=False)
    assert orphans(world) == []
    world.ledger.intake.drop_queue("q")
    assert orphans(world) == ["g"]
    world.ledger.intake.drop_group(GroupKey(key("g")))
    assert orphans(world) == []


def test_groups_of_other_kinds_are_never_taken_along() -> None:
    meta = replace(group("g", 1, "q", queue_uid="uid-q").metadata)
    world = World(nodes("a"), queue("q"), PluginsPodGroup(meta, PodGroupSpec(1)))
    world.ledger.intake.drop_queue("q")
    assert orphans(world) == []


def test_a_queue_that_is_gone_is_forgotten_once_no_group_names_it() -> None:
    world = World(nodes("a"), queue("q"), group("g", 1, "q"), pod("g-0", "g"), records_trusted=False)
    world.ledger.intake.drop_queue("q")
    assert orphans(world) == []
    world.add(group("g", 1, "q", queue_uid="uid-q"))
    assert orphans(world) == []
    assert world.reason("g") is Reason.QUEUE_NOT_FOUND
