"""Every reason for which a group waits, and the message that users read."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.cluster import Taint
from extender.api.objects.pods import (
    Affinity,
    Container,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Port,
    Toleration,
)
from extender.api.objects.queues import QueueFlavor
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason, Verdict, refusal
from extender.domain.queues.records import RESERVE_AFTER
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import (
    HOSTNAME,
    NO_QUANTITY,
    anti_affinity,
    flavor,
    foreign_pod,
    group,
    node,
    on_flavor,
    on_nodes,
    pod,
    queue,
)
from tests.domain.world import World, gang, nodes, timestamp
from tests.rows import each_of

GPU = "x.io/gpu"
TOGETHER = "all suitable nodes together cannot hold {} members, even when empty"
LONG = RESERVE_AFTER + 1.0  # seconds after which capacity is reserved for a group that waits


class Case(NamedTuple):
    reason: Reason
    detail: str
    make: Callable[[], World]


def many_apart(count: int) -> Affinity:
    terms = [PodAffinityTerm(HOSTNAME, LabelSelector({"app": f"{n}"})) for n in range(count)]
    return Affinity(pod_anti_affinity=PodAffinity(terms))


def with_host_ports(each: Pod, count: int) -> Pod:
    ports = [Port(host_port=number) for number in range(1, count + 1)]
    return replace(each, spec=replace(each.spec, containers=[Container(ports=ports)]))


def reviewing_users(world: World) -> World:
    world.ledger.intake.review_users()
    return world


def refused(seconds: float = 8.0) -> World:
    """Return a world where the scheduler used no node for a gang, this long ago."""
    world = World(node("n"), gang("g", 2)).settle().ungate("g-0", "g-1")
    world.refuse("g-0", "0/1 nodes are available: 1 node(s) had no magic.")
    world.pass_time(seconds)
    return world


CASES = {
    "no PodGroup": Case(
        Reason.GROUP_NOT_FOUND,
        "PodGroup team/g does not exist",
        lambda: World(node("n"), pod("g-0", "g")),
    ),
    "no queue": Case(
        Reason.QUEUE_NOT_FOUND,
        "queue q does not exist",
        lambda: World(node("n"), gang("g", 1, queue="q")),
    ),
    "negative minMember": Case(
        Reason.INVALID_SPEC,
        "spec.minMember is -1; it must be 0 or more",
        lambda: World(node("n"), group("g", -1), pod("g-0", "g")),
    ),
    "negative minTaskMember": Case(
        Reason.INVALID_SPEC,
        "spec.minTaskMember[ps] is -2; it must be 0 or more",
        lambda: World(node("n"), group("g", 1, roles={"ps": -2}), pod("g-0", "g")),
    ),
    "minResources that do not parse": Case(
        Reason.INVALID_SPEC,
        f"spec.minResources: '1 core' {NO_QUANTITY}",
        lambda: World(node("n"), group("g", 1, min_resources={"cpu": "1 core"}), pod("g-0", "g")),
    ),
    "queue not open": Case(
        Reason.QUEUE_NOT_OPEN,
        "queue q is Closing",
        lambda: World(node("n"), queue("q", spec_state="Closed"), gang("g", 1, queue="q")),
    ),
    "a queue's name that no object can have": Case(
        Reason.INVALID_SPEC,
        f"the name of its queue, {'q' * 40}…, has more than 253 characters",
        lambda: World(node("n"), gang("g", 1, queue="q" * 254)),
    ),
    "more terms than are evaluated": Case(
        Reason.TOO_COMPLEX,
        "pod g-0 has 65 required pod (anti-)affinity terms: must be at most 64",
        lambda: World(node("n"), gang("g", 1, affinity=many_apart(65))),
    ),
    "more host ports than are evaluated": Case(
        Reason.TOO_COMPLEX,
        "pod p has 257 host ports: must be at most 256",
        lambda: World(node("n"), gang("g", 1), with_host_ports(pod("p", "g"), 257)),
    ),
    "more resources than are evaluated": Case(
        Reason.TOO_COMPLEX,
        "pod g-0 has 257 resources: must be at most 256",
        lambda: World(node("n"), gang("g", 1, more={f"x.io/r{n}": "1" for n in range(256)})),
    ),
    "more text than is evaluated": Case(
        Reason.TOO_COMPLEX,
        "pod g-0 has 193 KiB of selectors, affinity, tolerations and volumes: must be at most 128",
        lambda: World(
            node("n"), gang("g", 1, affinity=on_nodes("own", "In", *("x" * 97 for _ in range(2000))))
        ),
    ),
    "a namespace that the queue does not take": Case(
        Reason.NAMESPACE_NOT_ALLOWED,
        "spec.namespaceSelector of queue q does not select namespace team",
        lambda: World(
            node("n"), queue("q", namespace_selector=LabelSelector({"team": "ai"})), gang("g", 1, queue="q")
        ),
    ),
    "a restricted queue whose use is not noted": Case(
        Reason.QUEUE_NOT_ALLOWED,
        "queue q is restricted, and no record says that the group's author may use it "
        "(kube-muster.io/may-use)",
        lambda: reviewing_users(World(node("n"), queue("q", restricted=True), gang("g", 1, queue="q"))),
    ),
    "a group that was started in vain too often": Case(
        Reason.START_TIMED_OUT,
        "its start was undone 3 times in a row",
        lambda: World(node("n"), gang("g", 1, notes={keys.START_TIMEOUTS: "3"})),
    ),
    "too few members": Case(
        Reason.NOT_ENOUGH_MEMBERS,
        "2 of 3 members exist",
        lambda: World(node("n"), gang("g", 2, min_member=3)),
    ),
    "no members at all": Case(
        Reason.NOT_ENOUGH_MEMBERS, "0 of 3 members exist", lambda: World(node("n"), group("g", 3))
    ),
    "a member larger than any node": Case(
        Reason.NEVER_FITS,
        "no node can hold cpu 5 (suitable nodes: 2)",
        lambda: World(nodes("a", "b"), gang("g", 1, cpu="5")),
    ),
    "a node selector with a typo": Case(
        Reason.NEVER_FITS,
        "no node has the label disk=sdd that nodeSelector names",
        lambda: World(nodes("a", "b", labels={"disk": "ssd"}), gang("g", 1, selector={"disk": "sdd"})),
    ),
    "a node affinity with a typo": Case(
        Reason.NEVER_FITS,
        "no node has what the required node affinity asks for (disk In sdd, tape)",
        lambda: World(
            nodes("a", labels={"disk": "ssd"}), gang("g", 1, affinity=on_nodes("disk", "In", "sdd", "tape"))
        ),
    ),
    "no toleration for the taint of all nodes": Case(
        Reason.NEVER_FITS,
        "every node has a taint that is not tolerated: dedicated=batch:NoSchedule",
        lambda: World(nodes("a", taints=[Taint("dedicated", "NoSchedule", "batch")]), gang("g", 1)),
    ),
    "demands that no node meets together": Case(
        Reason.NEVER_FITS,
        "no node has all at once: the label disk=ssd that nodeSelector names, "
        "the label zone=b that nodeSelector names, taints that are tolerated",
        lambda: World(
            node("a", labels={"disk": "ssd"}),
            node("b", labels={"zone": "b"}),
            gang("g", 1, selector={"disk": "ssd", "zone": "b"}),
        ),
    ),
    "a gang larger than the suitable nodes": Case(
        Reason.NEVER_FITS,
        f"cpu: 5 needed, 4 there; {TOGETHER.format(5)}",
        lambda: World(nodes("a", "b"), gang("g", 5, selector={HOSTNAME: "a"})),
    ),
    "a gang with more members that stand apart than nodes": Case(
        Reason.NEVER_FITS,
        TOGETHER.format(3),
        lambda: World(nodes("a", "b"), gang("g", 3, labels={"app": "x"}, affinity=anti_affinity(app="x"))),
    ),
    "a gang with one host port on too few nodes": Case(
        Reason.NEVER_FITS,
        TOGETHER.format(3),
        lambda: World(nodes("a", "b"), gang("g", 3, host_port=80)),
    ),
    "a gang larger than its queue may grow": Case(
        Reason.NEVER_FITS,
        "too large for the ceiling of queue q: cpu: 0 held + 3 asked > 2",
        lambda: World(nodes("a"), queue("q", capability={"cpu": "2"}), gang("g", 3, queue="q")),
    ),
    "a resource that no node has": Case(
        Reason.NEVER_FITS,
        f"no node has {GPU}",
        lambda: World(nodes("a"), gang("g", 1, more={GPU: "1"})),
    ),
    "a guaranteed resource that no node has": Case(
        Reason.NEVER_FITS,
        f"no node has {GPU}",
        lambda: World(nodes("a"), queue("q", guarantee={GPU: "9"}), gang("g", 1, queue="q", more={GPU: "1"})),
    ),
    "the queue's ceiling is reached": Case(
        Reason.QUEUE_CEILING,
        "queue q: cpu: 2 held + 2 asked > 3",
        lambda: (
            World(
                nodes("a"),
                queue("q", capability={"cpu": "3"}),
                gang("first", 2, queue="q", created="2026-01-01"),
            )
            .start("first")
            .add(gang("g", 2, queue="q", created="2026-01-02"))
        ),
    ),
    "what others are guaranteed is out of reach": Case(
        Reason.NEVER_FITS,
        "too large for the ceiling of queue q: cpu: 0 held + 3 asked > 2",
        lambda: World(nodes("a"), queue("q"), queue("r", guarantee={"cpu": "2"}), gang("g", 3, queue="q")),
    ),
    "above its share while others have a claim": Case(
        Reason.QUEUE_SHARE,
        "groups in r have a claim on the capacity",
        lambda: (
            World(nodes("a", "b", cpu="3"), queue("q"), queue("r"))
            .add(foreign_pod("s", on="a"), foreign_pod("t", on="b"))
            .add(gang("h", 3, queue="q", created="2026-01-01"))
            .start("h")
            .add(gang("big", 3, queue="r"), gang("g", 1, queue="q", created="2026-01-02"))
        ),
    ),
    "held": Case(
        Reason.HELD,
        'the annotation kube-muster.io/hold is "true"',
        lambda: World(nodes("a"), gang("g", 1, notes={"kube-muster.io/hold": "true"})),
    ),
    "in a queue that is stopped": Case(
        Reason.QUEUE_STOPPED,
        "spec.stopPolicy of queue q is Hold",
        lambda: World(nodes("a"), queue("q", stop_policy="Hold"), gang("g", 1, queue="q")),
    ),
    "behind the head of a fifo queue": Case(
        Reason.BEHIND_OTHERS,
        "team/head goes first in queue q",
        lambda: World(
            nodes("a"),
            queue("q", strategy="fifo"),
            foreign_pod("s", on="a"),
            gang("head", 4, queue="q", created="2026-01-01"),
            gang("g", 1, queue="q", created="2026-01-02"),
        ),
    ),
    "no capacity": Case(
        Reason.NO_ROOM,
        "cpu: 3 needed, 2 left on suitable nodes; capacity for 2 of 3 members",
        lambda: World(nodes("a"), foreign_pod("s", on="a", cpu="2"), gang("g", 3)),
    ),
    "insufficient in two resources": Case(
        Reason.NO_ROOM,
        "cpu: 3 needed, 2 left and memory: 3Gi needed, 1Gi left on suitable nodes; "
        "capacity for 1 of 3 members",
        lambda: World(
            node("a", cpu="4", memory="4Gi"),
            foreign_pod("s", on="a", cpu="2", more={"memory": "3Gi"}),
            gang("g", 3, more={"memory": "1Gi"}),
        ),
    ),
    "a flavor whose labels no node has": Case(
        Reason.NEVER_FITS,
        "flavor h200: NeverFits (no node has the flavor's labels flavor=h200)",
        lambda: World(
            node("a", taints=[Taint("gpu", "NoSchedule")]),
            queue("q", flavors=[flavor("h200")]),
            gang("g", 1, queue="q", tolerations=[Toleration(operator="Exists")]),
        ),
    ),
    "a flavor all of whose nodes are an earlier one's": Case(
        Reason.NEVER_FITS,
        f"flavor spot: NeverFits (cpu: 9 needed, 4 there; {TOGETHER.format(9)}); "
        "flavor rest: NeverFits (no node has the flavor's labels without those of an earlier flavor)",
        lambda: World(
            node("a", labels=on_flavor("spot")),
            queue("q", flavors=[flavor("spot"), QueueFlavor("rest")]),
            gang("g", 9, queue="q"),
        ),
    ),
    "capacity only in fragments": Case(
        Reason.FRAGMENTED,
        "capacity for 0 of 1 members at once",
        lambda: World(
            nodes("a", "b"),
            [foreign_pod(f"s{n}", on=n, cpu="2") for n in "ab"],
            gang("g", 1, cpu="4"),
        ),
    ),
    "capacity only in two racks": Case(
        Reason.NO_DOMAIN,
        "rack=a has the most free capacity, for 1 of 2 members",
        lambda: World(
            [node(f"{rack}{n}", "4", labels={"rack": rack}) for rack in "ab" for n in "01"],
            [foreign_pod(f"s{rack}", on=f"{rack}0", cpu="4") for rack in "ab"],
            gang("g", 2, cpu="4", annotations={keys.REQUIRED_TOPOLOGY: "rack"}),
        ),
    ),
    "capacity that is reserved for another group": Case(
        Reason.RESERVED,
        "team/first: nodes n are reserved; it is to start once they are free",
        lambda: _reserved_for_another(),
    ),
    "capacity is reclaimed for it": Case(
        Reason.RECLAIMING,
        "pods to evict: 1, of team/r0 (1); until 2026-01-01T00:21:40Z",
        lambda: (
            World(nodes("a"), queue("q"), queue("r"), [gang(f"r{n}", 1, queue="r") for n in range(4)])
            .start(*(f"r{n}" for n in range(4)))
            .add(gang("g", 1, queue="q"))
        ),
    ),
    "backing off": Case(
        Reason.BACKING_OFF,
        "0/1 nodes are available: 1 node(s) had no magic.",
        lambda: refused(3.0),
    ),
    "the window is full": Case(
        Reason.WINDOW_FULL,
        "2 members to start, window 3; from 2026-01-01T00:18:40Z on, "
        "places are reserved in the order of waiting",
        lambda: World(node("n"), limits=Limits(window=3)).add(gang("f", 2), gang("g", 2)),
    ),
    "larger than the window": Case(
        Reason.TOO_LARGE_FOR_WINDOW,
        "4 members, window 3",
        lambda: World(node("n"), limits=Limits(window=3)).add(gang("g", 4)),
    ),
    "refused by the scheduler": Case(
        Reason.REFUSED_BY_SCHEDULER,
        "0/1 nodes are available: 1 node(s) had no magic.",
        refused,
    ),
}


def _reserved_for_another() -> World:
    world = World(node("n"), [gang(name, 1, cpu="2") for name in ("ends", "stays")]).start("ends", "stays")
    world.add(gang("first", 1, cpu="4", created=timestamp(world.now))).pass_time(LONG)
    world.finish("ends-0")
    return world.add(gang("g", 1, created=timestamp(world.now)))


@each_of(*CASES.values())
def test_each_reason_has_its_case(case: Case) -> None:
    world = case.make().settle()
    assert (world.verdict("g"), world.reason("g")) == (Verdict.WAITING, case.reason)
    assert world.detail("g") == case.detail
    assert not world.plan("g")


def test_a_groups_name_that_no_object_can_have_is_said_in_short() -> None:
    """A name of 250,000 characters would be repeated in each line about the group."""
    world = World(node("n"), [pod(f"p{n}", "g" * 250_000, gated=False) for n in range(3)]).settle()
    (decision,) = world.decisions.groups.values()
    assert decision.reason is Reason.INVALID_SPEC
    assert decision.detail == f"the name of its group, {'g' * 40}…, has more than 253 characters"
    assert len(decision.key) < 100
    assert World(node("n"), gang("g" * 253, 1)).settle().verdict("g" * 253) is Verdict.STARTING


@each_of(*CASES.values())
def test_an_invalid_group_delays_no_other_group(case: Case) -> None:
    world = case.make().add(node("spare"), queue("other"), gang("good", 1, queue="other")).settle()
    assert world.verdict("good") is Verdict.STARTING or case.reason is Reason.WINDOW_FULL


def test_before_anything_is_decided_muster_is_not_ready() -> None:
    assert World(node("n"), gang("g", 1)).answer("g-0") is Reason.NOT_READY


@each_of(*Reason)
def test_the_message_of_a_reason_is_constant_and_has_the_prefix_of_muster(reason: Reason) -> None:
    assert refusal(reason).startswith(f"{REFUSAL_PREFIX}{reason}: ")
    assert not any(letter.isdigit() for letter in refusal(reason))


def test_every_reason_of_a_decision_has_a_case() -> None:
    assert {case.reason for case in CASES.values()} == set(Reason) - {Reason.NOT_READY}
