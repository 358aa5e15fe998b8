"""Filter: which of the offered nodes a pod may use."""

from typing import Any

import msgspec

from extender.api.protocol import ExtenderArgs, FilterResult, encode
from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.reasons import Reason, refusal
from extender.verbs.barrier import LEFT_TO_VOLCANO, NODE_CACHE_NEEDED
from tests.domain.builders import SCHEDULER, foreign_pod, node, pod, queue
from tests.domain.world import gang, key, nodes
from tests.rows import each_of
from tests.verbs.stage import Stage, raw

UNREADABLE_NAMES = msgspec.Raw(b'["a", 7, {]')  # decoding them fails


def refused(reason: Reason, offered: str) -> FilterResult:
    return FilterResult(node_names=[], failed_and_unresolvable_nodes={offered: refusal(reason)})


def planned_apart() -> Stage:
    """Return a gang of two whose members need a node each."""
    return Stage(nodes("a", "b", "c", cpu="1"), gang("g", 2))


def test_a_member_of_a_gang_gets_its_planned_node_and_the_same_answer_again() -> None:
    stage = planned_apart()
    assert stage.filter(stage.pods["g-0"]) == FilterResult(node_names=[stage.plan("g")["g-0"]])
    assert stage.stage("g-0") is ClaimStage.ANSWERED
    claim, version = stage.claim("g-0"), stage.ledger.version
    assert stage.filtered("g-0") == [stage.plan("g")["g-0"]]
    assert (stage.claim("g-0"), stage.ledger.version) == (claim, version)


def test_a_member_is_never_sent_where_the_scheduler_does_not_offer() -> None:
    stage = planned_apart()
    taken = stage.plan("g")["g-1"]
    assert stage.filter(stage.pods["g-0"], [taken]) == refused(Reason.NO_ROOM, taken)


def test_a_refusal_names_one_node_with_constant_words_and_leaves_the_others_out() -> None:
    stage = Stage(nodes("a", "b", "c", cpu="1"), gang("g", 4))
    answer = stage.filter(stage.pods["g-0"], ["b", "a", "c"])
    assert answer == refused(Reason.NEVER_FITS, "b")
    assert encode(answer) == (
        b'{"Nodes":null,"NodeNames":[],"FailedNodes":null,"FailedAndUnresolvableNodes":'
        b'{"b":"muster: NeverFits: the group is too large for this cluster or its queue"},"Error":""}'
    )


def test_a_refusal_says_the_same_whatever_the_numbers_behind_it() -> None:
    stage = Stage(nodes("a", "b", cpu="2"), gang("g", 3), foreign_pod("s", on="a"), foreign_pod("t", on="b"))
    before, detail = stage.filter(stage.pods["g-0"]), stage.detail("g")
    stage.add(foreign_pod("u", on="a", cpu="500m")).settle()
    assert stage.detail("g") != detail
    assert stage.filter(stage.pods["g-0"]) == before == refused(Reason.NO_ROOM, "a")


@each_of(
    ([pod("p", "absent")], Reason.GROUP_NOT_FOUND),
    ([pod("p", queue="nowhere")], Reason.QUEUE_NOT_FOUND),
    ([queue("shut", spec_state="Closed"), pod("p", queue="shut")], Reason.QUEUE_NOT_OPEN),
    ([gang("p", 1, min_member=2), pod("p", "p", uid="uid-p-0")], Reason.NOT_ENOUGH_MEMBERS),
    ([pod("p", cpu="5")], Reason.NEVER_FITS),
)
def test_a_refusal_gives_the_reason_of_the_group(objects: list[Any], reason: Reason) -> None:
    stage = Stage(node("n"), objects)
    assert stage.filter(stage.pods["p"]) == refused(reason, "n")


def test_before_the_cluster_is_read_our_pods_are_refused_until_later() -> None:
    stage = Stage()
    assert stage.filter(pod("p"), ["n"]) == refused(Reason.NOT_READY, "n")


def test_a_call_without_nodes_refuses_none() -> None:
    stage = planned_apart()
    assert stage.filter(stage.pods["g-0"], []) == FilterResult(
        node_names=[], failed_and_unresolvable_nodes={}
    )


# ---- groups of one


def test_a_group_of_one_gets_no_planned_capacity() -> None:
    stage = Stage(nodes("a", "b", cpu="1"), gang("g", 1, min_member=1), pod("p"))
    (planned,) = stage.plan("g").values()
    assert planned not in stage.filtered("p")


# ---- pods that the watch has not shown


def test_a_pod_that_no_watch_has_shown_waits_until_one_does() -> None:
    stage = Stage(node("n"))
    early = pod("p", gated=False)
    assert stage.filter(early, ["n"]) == refused(Reason.NOT_READY, "n")
    stage.add(early).settle()
    assert stage.filter(early, ["n"]) == FilterResult(node_names=["n"])


def test_invented_pods_hold_no_capacity_and_are_not_remembered() -> None:
    stage = Stage(node("n", cpu="2"))
    version = stage.ledger.version
    for number in range(100):
        stage.filter(pod(f"invented-{number}", gated=False), ["n"])
    assert stage.settle().ledger.version == version
    stage.add(pod("p", cpu="2")).settle()
    assert stage.filtered("p") == ["n"]


def test_a_filter_call_after_the_end_of_its_pod_does_not_restore_the_pod() -> None:
    """The watch was faster. From then on, a group of two has one member, not two."""
    stage = Stage(nodes("a", "b"), gang("g", 2))
    late = stage.pods["g-1"]
    stage.delete("g-1")
    stage.filter(late, ["a"])
    assert stage.settle().reason("g") is Reason.NOT_ENOUGH_MEMBERS
    assert [member.name for member in stage.ledger.groups.members(key("g"))] == ["g-0"]


def test_a_pod_with_a_quantity_that_does_not_parse_is_refused_not_failed() -> None:
    stage = Stage(node("n"))
    assert stage.filter(pod("p", cpu="a lot"), ["n"]) == refused(Reason.NOT_READY, "n")


# ---- pods that are not ours


def test_a_pod_that_is_not_ours_passes_undecoded_and_is_not_remembered() -> None:
    stage, whole = Stage(node("a")), raw({"items": [{"metadata": {"name": "a"}}]})
    forms: list[dict[str, Any]] = [{"node_names": UNREADABLE_NAMES}, {"nodes": whole}]
    for given in forms:
        assert stage.verbs.filter(ExtenderArgs(foreign_pod("s"), **given)) == FilterResult(**given)
    assert stage.ledger.pods.find("team", "s") is None


# ---- schedulers that are not configured as they must be


def test_whole_nodes_are_an_error_for_pods_of_ours() -> None:
    stage = planned_apart()
    given = raw({"items": [{"metadata": {"name": "a"}}]})
    answer = stage.verbs.filter(ExtenderArgs(stage.pods["g-0"], nodes=given))
    assert answer == FilterResult(error=NODE_CACHE_NEEDED)


def test_neither_nodes_nor_names_means_no_nodes() -> None:
    stage = planned_apart()
    assert stage.verbs.filter(ExtenderArgs(stage.pods["g-0"])) == FilterResult(node_names=[])


def test_pods_that_are_left_to_another_scheduler_are_refused_and_neither_scored_nor_let_evict() -> None:
    stage = Stage(nodes("a", "b"), pod("p"))
    stage.ledger.pods.set_unmanaged(frozenset({SCHEDULER}))
    args = ExtenderArgs(stage.pods["p"], node_names=raw(["b", "a"]))
    assert stage.verbs.filter(args) == FilterResult(
        node_names=[], failed_and_unresolvable_nodes={"b": LEFT_TO_VOLCANO}
    )
    assert stage.verbs.prioritize(args) == []
    assert stage.verbs.filter(ExtenderArgs(stage.pods["p"])).error == LEFT_TO_VOLCANO
