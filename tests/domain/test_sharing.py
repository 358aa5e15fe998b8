"""Order of groups, borrowed capacity, and the queues that may borrow it."""

from typing import Any

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import foreign_pod, node, pod, queue
from tests.domain.world import World, gang, nodes
from tests.rows import each_of

STARTS, WAITS, RUNS = Verdict.STARTING, Verdict.WAITING, Verdict.RUNNING


def test_of_two_gangs_above_their_shares_one_runs_and_then_the_other() -> None:
    """kube-batch#492: both queues deserve 2 of 4 cpus, both gangs need 3."""
    world = World(node("n"), queue("q"), queue("r"), gang("a", 3, queue="q"), gang("b", 3, queue="r"))
    assert sorted(world.settle().verdicts("a", "b")) == [STARTS, WAITS]
    world.start("a").finish("a-0", "a-1", "a-2").settle()
    assert world.verdict("b") is STARTS


def contended() -> World:
    """Return queue q at its share of 3; a gang of r within its share lacks one cpu, and 2 are idle."""
    world = World(node("n", cpu="6"), queue("q"), queue("r"), foreign_pod("s", on="n"))
    world.add(gang("a", 3, queue="q", created="2026-01-01")).start("a")
    return world.add(gang("claimant", 3, queue="r", created="2026-01-03"))


def test_a_group_above_its_share_waits_while_another_has_a_claim_which_gets_the_capacity() -> None:
    world = contended().add(gang("b", 1, queue="q", created="2026-01-02")).settle()
    assert [world.reason("claimant"), world.reason("b")] == [Reason.NO_ROOM, Reason.QUEUE_SHARE]
    assert world.delete("s").settle().verdict("claimant") is STARTS


def test_a_group_above_its_share_starts_when_the_claim_is_gone() -> None:
    world = contended().add(gang("b", 1, queue="q", created="2026-01-02")).settle()
    world.delete("claimant-0", "claimant-1", "claimant-2").settle()
    assert world.verdict("b") is STARTS


def test_capacity_that_a_claimant_cannot_use_is_borrowed() -> None:
    world = contended().add(node("far", labels={"far": "y"}, taints=[]))
    world.add(gang("picky", 9, queue="r", selector={"kubernetes.io/hostname": "n"}))
    world.add(gang("b", 1, queue="q", selector={"far": "y"})).settle()
    assert world.verdict("b") is STARTS


def test_elastic_members_do_not_take_the_capacity_of_a_claimant() -> None:
    world = World(node("n", cpu="6"), queue("q"), queue("r"), foreign_pod("s", on="n"))
    world.add(gang("elastic", 6, min_member=3, queue="q"))
    for n in range(3):
        world.bind(f"elastic-{n}", "n")
    world.add(gang("claimant", 3, queue="r")).settle()
    assert world.reason("claimant") is Reason.NO_ROOM
    assert not world.plan("elastic")
    assert world.reason("elastic") is Reason.QUEUE_SHARE


@each_of(0, 1)
def test_elastic_members_within_their_share_do_not_borrow(others: int) -> None:
    """Start them whether or not others borrow capacity: only borrowers are kept out."""
    world = World(node("n", cpu="9"), queue("q"), queue("r", weight=2), queue("p"))
    world.add(foreign_pod("s", cpu="3", on="n"), gang("elastic", 2, min_member=1, queue="q"))
    world.bind("elastic-0", "n")
    world.add(gang("full", 3, queue="p"))
    for n in range(3):
        world.bind(f"full-{n}", "n")
    world.add(gang("claimant", 4, queue="r"), gang("above", others, queue="p")).settle()
    assert world.decision("claimant").claims_capacity
    assert others == 0 or world.reason("above") is Reason.QUEUE_SHARE
    assert list(world.plan("elastic")) == ["elastic-1"]


def test_elastic_members_that_would_not_fit_anyway_say_so() -> None:
    """The two cpus that are kept would not be enough for a gang of 3."""
    world = World(node("n", cpu="6"), queue("q"), queue("r"), foreign_pod("s", on="n"))
    world.add(gang("elastic", 3, min_member=3, queue="q"), pod("elastic-9", "elastic", cpu="3"))
    for n in range(3):
        world.bind(f"elastic-{n}", "n")
    world.add(gang("claimant", 3, queue="r")).settle()
    assert world.decision("claimant").claims_capacity
    assert world.reason("elastic") is Reason.NO_ROOM
    lacks = "cpu: 3 needed, 0 left on suitable nodes; no free capacity for 1 more member"
    assert world.detail("elastic") == lacks


def test_elastic_members_borrow_what_no_queue_claims() -> None:
    world = World(node("n", cpu="6"), queue("q"), queue("r"), gang("b", 1, queue="r"))
    world.add(gang("elastic", 9, min_member=1, queue="q")).settle()
    world.start("b", "elastic")
    assert len(world.plan("elastic")) == 4
    assert world.queue("q").deserved["cpu"] == 5000
    assert world.reason("elastic") is Reason.QUEUE_CEILING or world.reason("elastic") is Reason.NO_ROOM


def test_queues_take_turns_by_share() -> None:
    world = World(node("n"), queue("q"), queue("r"))
    for n in range(4):
        world.add(gang(f"q{n}", 1, queue="q", created="2026-01-01"))
        world.add(gang(f"r{n}", 1, queue="r", created="2026-01-02"))
    world.settle()
    assert world.verdicts("q0", "q1", "q2", "q3").count(STARTS) == 2
    assert world.verdicts("r0", "r1", "r2", "r3").count(STARTS) == 2


@each_of({"selector": {"no": "such"}}, {"cpu": "9"}, {"members": 7})
def test_a_group_that_can_never_start_does_not_block_a_fifo_queue(head: dict[str, Any]) -> None:
    world = World(node("n", cpu="8"), queue("q", strategy="fifo"), limits=Limits(window=6))
    world.add(gang("head", **{"members": 2, **head}, queue="q", created="2026-01-01"))
    world.add(gang("next", 1, queue="q", created="2026-01-02")).settle()
    assert world.reason("head") in (Reason.NEVER_FITS, Reason.TOO_LARGE_FOR_WINDOW)
    assert world.verdict("next") is STARTS


def test_a_fifo_queue_blocks_no_other_queue() -> None:
    world = World(node("n"), foreign_pod("s", on="n"), queue("q", strategy="fifo"), queue("r"))
    world.add(gang("big", 4, queue="q"), gang("behind", 1, queue="q", created="2026-01-09"))
    world.add(gang("other", 1, queue="r")).settle()
    assert world.reason("behind") is Reason.BEHIND_OTHERS
    assert world.verdict("other") is STARTS


def test_a_fifo_queue_continues_when_its_head_has_started() -> None:
    world = World(node("n"), queue("q", strategy="fifo"), gang("head", 3, queue="q", created="2026-01-01"))
    world.add(gang("next", 1, queue="q", created="2026-01-02")).settle()
    assert world.verdicts("head", "next") == [STARTS, STARTS]


# ---- surplus


def test_elastic_members_start_one_by_one() -> None:
    world = World(node("n"), gang("g", 6, min_member=2)).start("g")
    assert len(world.plan("g")) == 2
    assert world.reason("g") is Reason.NO_ROOM
    world.add(node("m", cpu="1"))
    assert len(world.settle().plan("g")) == 3


def test_gangs_come_before_elastic_members() -> None:
    world = World(node("n"), gang("g", 6, min_member=2)).start("g")
    for name in list(world.plan("g")):
        world.delete(name)
    world.add(gang("h", 2)).add(pod("g-8", "g"), pod("g-9", "g")).settle()
    assert world.verdict("h") is STARTS


def test_elastic_members_stays_within_the_window() -> None:
    world = World(node("n", cpu="64"), limits=Limits(window=4)).add(gang("g", 12, min_member=2)).start("g")
    assert len(world.plan("g")) == 4
    assert world.reason("g") is Reason.WINDOW_FULL


def test_elastic_members_stays_within_the_ceiling() -> None:
    world = World(node("n"), queue("q", capability={"cpu": "3"}), gang("g", 6, min_member=2, queue="q"))
    world.start("g")
    assert len(world.plan("g")) == 1
    assert world.reason("g") is Reason.QUEUE_CEILING


@each_of(("2", WAITS), ("2500m", WAITS), ("3", STARTS), ("", STARTS))
def test_a_capability_counts_where_pods_hold_more_than_nodes_offer(capability: str, verdict: Verdict) -> None:
    """Count pods of a deleted node until they are deleted."""
    limit = {"cpu": capability} if capability else None
    world = World(nodes("a", "b", cpu="2"), queue("q", capability=limit), gang("old", 2, queue="q")).start(
        "old"
    )
    world.drop_node(world.pods["old-0"].spec.node_name)
    world.add(gang("new", 1, queue="q")).settle()
    assert world.queue("q").allocated["cpu"] == 2000
    assert world.verdict("new") is verdict
    assert world.reason("new") is (Reason.QUEUE_CEILING if verdict is WAITS else None)


def borrowers(surplus: int = 12, **weights: int) -> World:
    """Return a cluster of 16 cpus.

    In each queue a group stands with one member and has further ones waiting.
    """
    world = World(node("n", cpu="16"))
    for name, weight in weights.items():
        world.add(queue(name, weight), gang(f"of-{name}", 1 + surplus, min_member=1, queue=name))
    for name in weights:
        world.bind(f"of-{name}-0", "n")
    return world.run(*(f"of-{name}-0" for name in weights)).settle()


@each_of(
    ({"q": 1, "r": 1}, {"q": 7, "r": 7}),
    ({"q": 3, "r": 1}, {"q": 11, "r": 3}),
    ({"q": 1, "r": 1, "s": 2}, {"q": 3, "r": 3, "s": 7}),
)
def test_elastic_members_start_by_share(weights: dict[str, int], more: dict[str, int]) -> None:
    world = borrowers(**weights)
    assert {name: len(world.plan(f"of-{name}")) for name in weights} == more


@each_of((0, [8, 8]), (1, [5, 11]))
def test_borrowed_capacity_is_shared_equally_or_goes_to_the_queue_of_higher_priority(
    priority: int, started: list[int]
) -> None:
    """A queue whose gang can never run has a third of the cluster; the others have it in equal parts."""
    world = World(node("n", cpu="18"), queue("q"), queue("r", priority=priority), queue("idle"))
    world.add(gang("never", 9, queue="idle", selector={"no": "such"}))
    for name in ("q", "r"):
        world.add(gang(f"of-{name}", 18, min_member=1, queue=name)).bind(f"of-{name}-0", "n")
    world.run("of-q-0", "of-r-0").settle()
    assert world.queue("q").deserved["cpu"] == world.queue("r").deserved["cpu"] == 6000
    assert [len(world.plan(f"of-{name}")) for name in ("q", "r")] == started


def test_elastic_members_of_several_shapes_skip_those_that_do_not_fit() -> None:
    world = World(node("n", cpu="4"), gang("g", 1, min_member=1)).start("g")
    world.add(pod("large", "g", cpu="8"), pod("small", "g", cpu="1"), pod("tiny", "g", cpu="500m")).settle()
    assert set(world.plan("g")) == {"small", "tiny"}
    assert world.reason("g") is Reason.NO_ROOM


# ---- the window


def test_a_large_gang_is_not_overtaken_for_ever() -> None:
    world = World(node("n", cpu="64"), limits=Limits(window=4))
    world.add(gang("first", 2, created="2026-01-01"), gang("large", 4, created="2026-01-02"))
    world.add(gang("small", 1, created="2026-01-03")).settle()
    assert [world.reason(name) for name in ("large", "small")] == [Reason.WINDOW_FULL] * 2
    world.scheduler_takes("first-0", "first-1").settle()
    assert world.verdicts("large", "small") == [STARTS, WAITS]


# ---- replacements


def test_replacements_have_first_claim_on_capacity() -> None:
    world = World(nodes("n"), gang("g", 4)).start("g")
    world.add(gang("waiting", 1, created="2020-01-01")).settle()
    assert world.verdict("waiting") is WAITS
    world.delete("g-3").add(pod("g-new", "g", created="2026-12-31")).settle()
    assert (world.verdict("g"), world.plan("g")) == (RUNS, {"g-new": "n"})
    assert world.verdict("waiting") is WAITS


def test_replacements_start_one_by_one_and_undo_no_member() -> None:
    world = World(nodes("n"), gang("g", 4)).start("g").delete("g-2", "g-3")
    world.add(foreign_pod("s", on="n"), pod("g-4", "g"), pod("g-5", "g")).settle()
    assert list(world.plan("g").values()) == ["n"]
    assert (world.verdict("g"), world.reason("g"), world.decision("g").undo) == (RUNS, Reason.NO_ROOM, ())
    world.pass_time(10_000)
    assert not world.decision("g").undo
