"""Prioritize packs; preempt protects gangs, and evicts no pods for pods of ours."""

import asyncio

from msgspec.structs import replace

from extender.api.objects.pods import Pod, PodStatus
from extender.api.protocol import (
    ExtenderArgs,
    FullVictims,
    HostPriority,
    MetaVictims,
    PreemptionArgs,
    Victim,
)
from tests.domain.builders import foreign_pod, group, node, pod
from tests.domain.world import gang, nodes
from tests.rows import each_of
from tests.verbs.stage import Stage, raw


def victims(*names: str) -> MetaVictims:
    return MetaVictims([Victim(f"uid-{name}") for name in names], 1)


def survivors(stage: Stage, preemptor: Pod, **candidates: MetaVictims) -> dict[str, MetaVictims]:
    """Return the victims left by preempt for a pod that the watch has shown."""
    if preemptor.metadata.name not in stage.pods:
        stage.add(preemptor)
    return survivors_of_unseen(stage, preemptor, **candidates)


def survivors_of_unseen(stage: Stage, preemptor: Pod, **candidates: MetaVictims) -> dict[str, MetaVictims]:
    args = PreemptionArgs(preemptor, node_name_to_meta_victims=candidates)
    return asyncio.run(stage.verbs.preempt(args)).node_name_to_meta_victims


def running_gang(size: int = 3, min_member: int = 2) -> Stage:
    """Return a gang that stands, with surplus members, each pod on its own node."""
    stage = Stage(nodes("a", "b", "c", cpu="1"), gang("g", size, min_member=min_member))
    stage.start("g")
    if size > min_member:
        stage.scheduler_takes(*stage.plan("g")).run(*(f"g-{n}" for n in range(size)))
    stage.settle()
    return stage


def crowded_gang(size: int, min_member: int) -> Stage:
    """Return the running gang on one node."""
    stage = Stage(node("n", cpu="16"), gang("g", size, min_member=min_member))
    stage.start("g")
    stage.scheduler_takes(*stage.plan("g")).run(*(f"g-{n}" for n in range(size))).settle()
    return stage


# ---- prioritize


def scores(stage: Stage, asker: Pod, *offered: str) -> list[HostPriority]:
    return stage.verbs.prioritize(ExtenderArgs(asker, node_names=raw(list(offered))))


def test_fuller_nodes_get_higher_scores() -> None:
    stage = Stage(
        node("a"), node("b"), node("c"), foreign_pod("s", on="b"), foreign_pod("t", on="c", cpu="3")
    )
    stage.add(pod("p"))
    assert scores(stage, stage.pods["p"], "a", "b", "c") == [
        HostPriority("a", 2),
        HostPriority("b", 5),
        HostPriority("c", 10),
    ]


def test_only_offered_nodes_are_scored() -> None:
    stage = Stage(node("a"), node("b"), pod("p"))
    assert [score.host for score in scores(stage, stage.pods["p"], "b")] == ["b"]


def test_pods_that_are_not_ours_or_not_known_are_not_scored() -> None:
    stage = Stage(node("a"))
    assert scores(stage, foreign_pod("s"), "a") == scores(stage, pod("unknown"), "a") == []


# ---- preempt


def test_our_pods_evict_no_pod() -> None:
    stage = Stage(node("a"), foreign_pod("s", on="a"), pod("p", priority=1000))
    assert survivors(stage, stage.pods["p"], a=victims("s")) == {}


def test_other_pods_may_evict_pods_that_are_not_ours() -> None:
    stage = Stage(node("a"), foreign_pod("s", on="a"))
    assert survivors(stage, foreign_pod("p"), a=victims("s", "unknown")) == {"a": victims("s", "unknown")}


@each_of((["g-0"], True), (["g-0", "g-1"], False), (["g-0", "g-1", "g-2"], False))
def test_other_pods_may_evict_surplus_members_and_break_no_running_gang(lost: list[str], may: bool) -> None:
    candidates = {"a": victims(*lost), "b": victims("other")}
    reserved = survivors(running_gang(size=3, min_member=2), foreign_pod("p"), **candidates)
    assert reserved == (candidates if may else {"b": victims("other")})


def test_other_pods_may_evict_groups_of_one() -> None:
    stage = Stage(nodes("a"), pod("p"))
    stage.scheduler_takes("p").run("p").settle()
    assert survivors(stage, foreign_pod("s"), a=victims("p")) == {"a": victims("p")}


def test_a_candidate_is_dropped_for_one_of_several_gangs() -> None:
    stage = Stage(nodes("a", "b"), gang("loose", 2, min_member=1), gang("tight", 2))
    stage.start("loose", "tight")
    stage.scheduler_takes(*stage.plan("loose")).run("loose-0", "loose-1").settle()
    assert survivors(stage, foreign_pod("p"), a=victims("loose-0")) != {}
    assert survivors(stage, foreign_pod("p"), a=victims("loose-0", "tight-0")) == {}


def test_a_pod_that_only_the_api_server_knows_yet_may_evict() -> None:
    """The scheduler asks once; its watch may be ahead of Muster's."""
    stage = crowded_gang(size=4, min_member=2)
    new, free = foreign_pod("new"), {"a": victims("g-0", "g-1")}
    stage.api.pods["new"] = new
    assert survivors_of_unseen(stage, new, **free) == free
    assert survivors(stage, foreign_pod("p"), **free) == {}


def test_an_invented_pod_evicts_none_of_ours_and_gets_no_capacity() -> None:
    stage = crowded_gang(size=4, min_member=2).add(foreign_pod("s", on="n"))
    assert isinstance(stage, Stage)
    free, foreign = {"a": victims("g-0", "g-1")}, {"b": victims("s")}
    assert survivors_of_unseen(stage, foreign_pod("invented"), **free, **foreign) == foreign
    assert survivors(stage, foreign_pod("p"), **free) == free


def test_a_second_preemption_counts_the_victims_of_the_first() -> None:
    """The scheduler evicts some time after it got the permission."""
    stage = crowded_gang(size=4, min_member=2)
    free = {"a": victims("g-0"), "b": victims("g-1")}
    assert survivors(stage, foreign_pod("p"), **free) == free
    assert survivors(stage, foreign_pod("q"), **free) == free
    assert survivors(stage, foreign_pod("r"), **free) == {}, "two may go, and were promised"
    assert survivors(stage, foreign_pod("q"), **free) == free, "a preemptor does not block itself"
    stage.pass_time(31.0)
    assert survivors(stage, foreign_pod("r"), **free) == free, "no victim went"


def test_an_ended_preemption_blocks_no_other() -> None:
    stage = crowded_gang(size=4, min_member=2)
    assert survivors(stage, foreign_pod("p"), a=victims("g-0"), b=victims("g-1", "g-2")) != {}
    assert survivors(stage, foreign_pod("q"), a=victims("g-3")) == {}, "it may be two that go"
    stage.add(replace(foreign_pod("p"), status=PodStatus(nominated_node_name="a")))
    assert survivors(stage, foreign_pod("q"), a=victims("g-3")) != {}, "it is one"
    stage.delete("g-0").add(foreign_pod("p", on="a"))
    assert survivors(stage, foreign_pod("r"), a=victims("g-3")) == {}, "promised to the second one"


def test_a_role_that_the_gang_needs_is_not_spared() -> None:
    stage = Stage(node("a"), group("g", 2, roles={"driver": 1}))
    stage.add(pod("driver", "g", role="driver"), *(pod(f"worker-{n}", "g") for n in range(3)))
    stage.start("g").scheduler_takes(*stage.plan("g")).settle()
    assert survivors(stage, foreign_pod("p"), a=victims("driver"), b=victims("worker-0")) == {
        "b": victims("worker-0")
    }


def test_candidates_that_hit_a_start_under_way_are_dropped() -> None:
    stage = Stage(nodes("a", "b", cpu="1"), gang("g", 2))
    stage.filtered("g-0")
    assert survivors(stage, foreign_pod("p"), a=victims("g-0")) == {}
    stage.hold("g-0", stage.plan("g")["g-0"])
    assert survivors(stage, foreign_pod("p"), a=victims("g-0")) == {}
    stage = Stage(nodes("a", "b", cpu="1"), gang("g", 2))
    stage.bind("g-0", "a")
    assert survivors(stage, foreign_pod("p"), a=victims("g-0")) == {}


def test_whole_victims_are_answered_in_their_short_form() -> None:
    stage = running_gang(size=3, min_member=2)
    stage.add(foreign_pod("p"))
    full = {
        "a": FullVictims([stage.pods["g-0"]], 3),
        "b": FullVictims([stage.pods["g-0"], stage.pods["g-1"]]),
        "c": FullVictims(None),
    }
    answer = asyncio.run(stage.verbs.preempt(PreemptionArgs(foreign_pod("p"), node_name_to_victims=full)))
    assert answer.node_name_to_meta_victims == {
        "a": MetaVictims([Victim("uid-g-0")], 3),
        "c": MetaVictims([]),
    }


def test_no_candidates_are_no_preemption() -> None:
    answer = asyncio.run(Stage().verbs.preempt(PreemptionArgs(foreign_pod("p"))))
    assert answer.node_name_to_meta_victims == {}
