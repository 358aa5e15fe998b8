"""The judges of the campaign on small pictures: their accusations, and states that they accept."""

from typing import Any

from tests.e2e.harness import objects
from tests.rows import each_of
from tests.storm.gang_specs import QUEUE
from tests.storm.judges import ClusterState, evicted_gangs, violations
from tests.storm.view import Eviction

Json = dict[str, Any]


def node(name: str = "n0", cpu: str = "4", **changes: Any) -> Json:
    new_node = objects.node(name, cpu=cpu, labels={"zone": "a"})
    new_node["spec"] |= changes
    return new_node


def pod(
    name: str, on: str = "", phase: str = "", queue: str = "default", group: str = "g", **options: Any
) -> Json:
    new_pod = objects.pod(name, namespace="x", group=group or None, labels={QUEUE: queue}, **options)
    new_pod["metadata"]["uid"] = name
    new_pod["spec"] |= {"nodeName": on} if on else {}
    new_pod["status"] = {"phase": phase or ("Running" if on else "Pending")}
    return new_pod


def group(least: int, queue: str = "default", **spec: Any) -> Json:
    return objects.pod_group("g", namespace="x", min_member=least, queue=queue, **spec)


def queue(state: str = "Open", **spec: Any) -> Json:
    return {**objects.queue("default", **spec), "status": {"state": state}}


def reviewed(*pods: Json, group: Json, nodes: list[Json] | None = None, queue: Json = queue()) -> list[str]:  # noqa: B008
    return violations(ClusterState([node()] if nodes is None else nodes, list(pods), [group], [queue]))


# ---- what fits and does not run


def idle(where: str, waiter: str = "group g") -> list[str]:
    """Return the complaint about a waiter of queue default that fits there."""
    return [f"{waiter} of queue default fits and does not run: {where}"]


def test_a_gang_that_fits_must_run() -> None:
    assert reviewed(pod("a"), pod("b"), group=group(2)) == idle("a on n0, b on n0")


@each_of(
    [node(cpu="1")],  # too small
    [node(unschedulable=True)],  # cordoned
    [node(taints=[{"key": "k"}])],  # tainted
    [node(cpu="1"), node("n1", "500m")],  # in pieces
)
def test_a_gang_that_does_not_fit_may_wait(capacity: list[Json]) -> None:
    assert reviewed(pod("a"), pod("b"), group=group(2), nodes=capacity) == []


def test_held_capacity_is_not_free() -> None:
    held = pod("other", on="n0", group="", cpu="3")
    assert reviewed(held, pod("a"), pod("b"), group=group(2)) == []
    over = pod("other", on="n0", phase="Succeeded", group="", cpu="3")
    assert len(reviewed(over, pod("a"), pod("b"), group=group(2))) == 1


def test_selectors_and_gpus_count() -> None:
    assert reviewed(pod("a", nodeSelector={"zone": "b"}), group=group(1)) == []
    assert reviewed(pod("a", limits={"example.com/gpu": "1"}), group=group(1)) == []


def racks(**cpu: str) -> list[Json]:
    """Return a node of each rack with so much cpu."""
    nodes = [node(name, amount) for name, amount in cpu.items()]
    for each in nodes:
        each["metadata"]["labels"]["rack"] = each["metadata"]["name"][0]
    return nodes


def test_members_that_share_a_rack_must_fit_into_one() -> None:
    in_a_rack: Json = {"annotations": {"kube-muster.io/required-topology": "rack"}}
    waiting = (pod("a", **in_a_rack), pod("b", **in_a_rack))
    assert reviewed(*waiting, group=group(2), nodes=racks(a0="1", b0="1")) == []
    two = racks(a0="1", b0="1", b1="1")
    assert reviewed(*waiting, group=group(2), nodes=two) == idle("a on b0, b on b1")
    new_pod = pod("c", on="a0", **in_a_rack)
    assert reviewed(new_pod, *waiting, group=group(3), nodes=two) == []
    assert reviewed(new_pod, waiting[0], group=group(2), nodes=racks(a0="1", a1="1")) == idle("a on a1")


def test_missing_members_excuse_a_waiting_gang() -> None:
    assert reviewed(pod("a"), group=group(2)) == []
    assert (
        reviewed(pod("a", task="w"), pod("b", task="w"), group=group(2, minTaskMember={"w": 1, "l": 1})) == []
    )
    both = (pod("a", task="w"), pod("b", task="l"))
    assert len(reviewed(*both, group=group(2, minTaskMember={"w": 1, "l": 1}))) == 1


def test_only_needed_members_must_fit_and_then_each_further_one() -> None:
    waiting = [pod(f"p{number}", cpu="2") for number in range(4)]
    assert "p0 on n0, p1 on n0" in reviewed(*waiting, group=group(2))[0]
    running = [pod("r0", on="n0"), pod("r1", on="n0")]
    assert reviewed(*running, *waiting, group=group(2)) == idle("p0 on n0")


def test_a_queue_at_its_ceiling_or_not_open_excuses() -> None:
    members = (pod("a"), pod("b"))
    assert reviewed(*members, group=group(2), queue=queue(capability={"cpu": "1"})) == []
    assert reviewed(*members, group=group(2), queue=queue(state="Closing")) == []
    assert reviewed(*members, group=group(2, queue="another")) == []
    assert len(reviewed(*members, group=group(2), queue=queue(capability={"cpu": "2"}))) == 1


def test_the_ceiling_of_a_parent_excuses_too() -> None:
    waits = [pod("a", cpu="2"), pod("b", "n0", queue="other", cpu="2", group="")]
    queues = [queue(parent="top"), {**queue(capability={"cpu": "3"}), "metadata": {"name": "top"}}]
    queues.append({**queue(parent="top"), "metadata": {"name": "other"}})
    assert violations(ClusterState([node()], waits, [group(1)], queues)) == []
    assert violations(ClusterState([node()], waits[:1], [group(1)], queues)) != []


def test_reserved_nodes_have_no_free_capacity() -> None:
    reserved = {**queue(), "status": {"state": "Open", "reservation": {"nodes": ["n0"]}}}
    assert reviewed(pod("a"), group=group(1), queue=reserved) == []
    assert reviewed(pod("a"), group=group(1), nodes=[node(), node("n1")], queue=reserved) != []


def test_a_borrowing_gang_may_wait_while_capacity_is_reserved_for_another() -> None:
    """The other is within its share, and lacks capacity only because of running pods."""
    large = {**objects.pod_group("large", namespace="x", min_member=2, queue="poor")}
    wanting = [pod(f"l{number}", queue="poor", group="large", cpu="2") for number in range(2)]
    running = pod("r", on="n0", queue="default", group="")

    def reviewed(deserved: str, of_poor: str = "4", *others: Json) -> list[str]:
        rich, poor = queue(), {**queue(), "metadata": {"name": "poor"}}
        rich["status"] = {"state": "Open", "deserved": {"cpu": deserved}}
        poor["status"] = {"state": "Open", "deserved": {"cpu": of_poor}}
        pods = [running, pod("a"), *(others or wanting)]
        return violations(ClusterState([node()], pods, [group(1), large], [rich, poor]))

    complaint = idle("a on n0")
    assert reviewed("1") == []
    assert reviewed("2") == complaint, "it does not borrow"
    assert reviewed("1", "3") == complaint, "the other would borrow, too"
    assert (
        reviewed(
            "1", "99", *[{**each, "spec": {**each["spec"], "nodeSelector": {"z": "z"}}} for each in wanting]
        )
        == complaint
    ), "the other could not stand even alone"


def test_a_pod_without_a_group_is_checked_alone() -> None:
    complaint = violations(ClusterState([node()], [pod("lone", group="")], [], [queue()]))
    assert complaint == idle("lone on n0", "pod lone")
    stranger = pod("lone", group="", scheduler="elsewhere")
    assert violations(ClusterState([node()], [stranger], [], [queue()])) == []


def test_where_a_queue_has_flavors_a_gang_fits_if_each_of_them_holds_it() -> None:
    """Its members are on nodes of one flavor, and the judge does not know of which."""
    flavors = [{"name": zone, "nodeLabels": {"zone": zone}} for zone in "ab"]
    nodes = [node(), {**node("n1"), "metadata": {"name": "n1", "labels": {"zone": "b"}}}]
    fits = [pod(name, cpu="2") for name in "ab"]
    assert reviewed(*fits, group=group(2), nodes=nodes, queue=queue(flavors=flavors))
    assert not reviewed(*fits, group=group(2), nodes=nodes[:1], queue=queue(flavors=flavors))


# ---- claims


def claimed(stage: str, at: str = "n0", of: str = "a", idle: int = 3000) -> list[Json]:
    claim = {"pod": f"x/{of}", "podGroup": "x/g", "node": at, "stage": stage}
    free = {"cpu": idle, "memory": 16 * 2**30 - 64 * 2**20, "pods": 109}
    return [{"name": "n0", "idle": free, "claims": [claim]}]


@each_of(
    ("HELD", "gone", [pod("a", on="n0")], "there is no such pod"),
    ("BOUND", "gone", [pod("a", on="n0")], "there is no such pod"),
    ("POSTED", "a", [pod("a", on="n0")], "it is bound"),
    ("PLANNED", "b", [pod("a", on="n0"), pod("b", cpu="9")], "it is still planned"),
    ("BOUND", "b", [pod("a", on="n0"), pod("b", on="n1")], "it is on n1"),
    ("BOUND", "b", [pod("a", on="n0"), pod("b", on="n0", phase="Failed")], "it has ended"),
)
def test_an_assumed_pod_needs_a_group(stage: str, of: str, pods: list[Json], complaint: str) -> None:
    found = violations(ClusterState([node()], pods, [group(1)], [queue()], claimed(stage, of=of)))
    assert found == [f"claim {stage} of x/{of} on n0: {complaint}"]


def test_an_assumed_pod_may_be_bound() -> None:
    assert (
        violations(ClusterState([node()], [pod("a", on="n0")], [group(1)], [queue()], claimed("BOUND"))) == []
    )


def test_wrong_sums_are_reported() -> None:
    books = claimed("BOUND", idle=2500)
    found = violations(ClusterState([node()], [pod("a", on="n0")], [group(1)], [queue()], books))
    assert found == ["node n0: Muster says cpu 2500 idle, it is 3000"]
    found = violations(
        ClusterState([node(), node("n1")], [pod("a", on="n0")], [group(1)], [queue()], claimed("BOUND"))
    )
    assert found == ["node n1: Muster does not know it"]


# ---- what is said


def test_a_group_that_waits_says_why() -> None:
    def reported(reason: str, decided: str) -> list[str]:
        conditions = [{"type": "Scheduled", "status": "False", "reason": reason}] if reason else []
        flagged = {**group(2), "status": {"conditions": conditions}}
        page = [{"podGroup": "x/g", "verdict": "Waiting", "reason": decided}]
        return violations(ClusterState(groups=[flagged], decided=page))

    assert reported("NoRoom", "NoRoom") == []
    for written in ("NoRoom", ""):
        assert reported(written, "Fragmented") == [
            f"group g says {written or 'nothing'}, Muster decided Fragmented"
        ]
    assert (
        violations(ClusterState(decided=[{"podGroup": "x/gone", "verdict": "Waiting", "reason": "NoRoom"}]))
        == []
    )


# ---- fully running gangs


def test_a_fully_running_gang_is_not_undone() -> None:
    evictions = [
        Eviction(5, "g", "g-0"),
        Eviction(12, "g", "g-1"),
        Eviction(13, "g", "g-2"),
        Eviction(14, "h", "h-0"),
    ]
    assert list(evicted_gangs(evictions, {"g": 10})) == [
        (12, "g", "gang g had run fully, and g-1 was evicted")
    ]
    assert list(evicted_gangs(evictions, {"g": 20})) == []
