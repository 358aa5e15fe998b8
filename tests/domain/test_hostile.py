"""Input of tenants: no cycle raises, nothing is left half-recorded, and all sums equal a recount."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Node, PriorityClass
from extender.api.objects.pods import (
    Affinity,
    Container,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Port,
    Requirement,
    ResourceRequirements,
)
from extender.api.objects.queues import Guarantee, PodGroup, PodGroupSpec, PodGroupStatus, Queue, QueueSpec
from extender.api.units import BadQuantity
from extender.domain.model.records import GroupKey, Origin, Uid
from extender.domain.model.resources import add
from tests.domain.builders import HOSTNAME, NAMESPACE, SCHEDULER, node, pod
from tests.domain.world import World
from tests.property_examples import examples

MAX_INT32 = 2**31 - 1
LONG = "x" * 253
NODES, PODS, GROUPS = ("n0", "n1", LONG), tuple(f"p{n}" for n in range(8)), ("g0", "g1", LONG)
QUEUES = ("", "default", "root", "q0", "q1", LONG)
ROLES = ("", "worker", "no-pod-has-it", LONG)
RESOURCES = (
    *("cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "x.io/gpu", f"x.io/{LONG}"),
    *("", "/", "requests.cpu", keys.GROUP_LABEL, "count/pods", "\N{SNOWMAN}/\N{SNOWMAN}"),
)
AMOUNTS = (
    *("0", "1", "2", "500m", "1n", "1Gi", "1e3", "1E-9", "+1", ".5", "5."),
    *("8E", "9E", "9223372036854775807", "9223372036854775808", "8Ei", "1e999", "9" * 5000),
    *("-1", "-9E", "-1e999", "", "NaN", "inf", "0x10", "1 Gi", "1e1000", "\N{ARABIC-INDIC DIGIT THREE}"),
    *(0, 1, -1, 2**63 - 1, -(2**63)),
)
COUNTS = (-MAX_INT32, -1, 0, 1, 2, 3, MAX_INT32)

quantities = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from(AMOUNTS), max_size=3)
sound = st.dictionaries(
    st.sampled_from(["cpu", "memory", "x.io/gpu"]), st.sampled_from(["1", "2", "9E"]), max_size=2
)
requests = st.one_of(sound, sound, quantities)
containers = st.lists(
    st.builds(
        Container,
        st.builds(ResourceRequirements, requests),
        st.none() | st.lists(st.builds(Port, st.sampled_from([0, -1, 80, 81, MAX_INT32])), max_size=3),
        st.sampled_from(["", "Always", "Never"]),
    ),
    max_size=3,
)
labels = st.dictionaries(
    st.sampled_from(["app", "job", LONG]), st.sampled_from(["x", "y", "", LONG]), max_size=2
)
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", LONG])
expressions = st.builds(
    Requirement, st.sampled_from(["app", "job"]), operators, st.none() | st.just(["x", "1"])
)
selectors = st.none() | st.builds(LabelSelector, labels, st.none() | st.lists(expressions, max_size=2))
terms = st.builds(
    PodAffinityTerm,
    st.sampled_from([HOSTNAME, "", "zone", LONG]),
    selectors,
    st.none() | st.lists(st.sampled_from([NAMESPACE, "elsewhere"]), max_size=2),
    st.none() | st.just(LabelSelector()),
)
some_terms = st.none() | st.builds(PodAffinity, st.lists(terms, max_size=3))
affinities = st.none() | st.builds(
    Affinity, pod_affinity=some_terms, pod_anti_affinity=st.one_of(some_terms, st.just("thousands"))
)


def thousands() -> PodAffinity:
    """Return labels that no other pod has."""
    return PodAffinity([PodAffinityTerm(HOSTNAME, LabelSelector({"job": f"j{n}"})) for n in range(2000)])


class Hostile(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World(node("n0"), node("n1", more={"x.io/gpu": "4"}))

    def bring(self, thing: Any) -> bool:
        """Return whether an object was accepted; one with a bad quantity is refused completely."""
        try:
            self.world.add(thing)
        except BadQuantity:
            return False
        return True

    # ---- what tenants and administrators write

    @rule(
        name=st.sampled_from(PODS),
        group=st.sampled_from(("", *GROUPS)),
        queue=st.sampled_from(QUEUES),
        role=st.sampled_from(ROLES),
        priority=st.none() | st.sampled_from(COUNTS),
        labels_=labels,
        affinity=affinities,
        run=containers,
        first=st.none() | containers,
        overhead=st.none() | requests,
        level=st.none() | st.builds(ResourceRequirements, requests),
        where=st.sampled_from(("", "", "", *NODES, "unknown")),
        phase=st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed", "strange"]),
        ours=st.sampled_from([True, True, True, False]),
        gated=st.booleans(),
        created=st.sampled_from(["", "", "9999-12-31T23:59:59Z"]),
    )
    def pod_comes_or_changes(self, name: str, run: Any, affinity: Any, **of: Any) -> None:
        if affinity is not None and affinity.pod_anti_affinity == "thousands":
            affinity = replace(affinity, pod_anti_affinity=thousands())
        known = self.world.pods.get(name)
        each = pod(
            name,
            of["group"],
            role=of["role"],
            queue=of["queue"],
            priority=of["priority"],
            labels=of["labels_"],
            on=of["where"] or (known.spec.node_name if known else ""),
            phase=of["phase"],
            scheduler=SCHEDULER if of["ours"] else "default-scheduler",
            gated=of["gated"],
            created=of["created"],
            affinity=affinity,
        )
        spec = replace(
            each.spec,
            containers=run,
            init_containers=of["first"],
            overhead=of["overhead"],
            resources=of["level"],
        )
        if not self.bring(replace(each, spec=spec)):
            self._refused(name, known)

    def _refused(self, name: str, known: Pod | None) -> None:
        """Check that the ledger knows no more of the object than before."""
        del self.world.pods[name]
        if known is not None:
            self.world.pods[name] = known
        else:
            assert self.world.ledger.pods.get(Uid(f"uid-{name}")) is None
            assert self.world.ledger.claims.get(Uid(f"uid-{name}")) is None

    @rule(name=st.sampled_from(PODS))
    def pod_goes(self, name: str) -> None:
        if name in self.world.pods:
            self.world.delete(name)

    @rule(name=st.sampled_from(PODS))
    def pod_is_marked_deleted(self, name: str) -> None:
        if name in self.world.pods:
            self.world.mark_deleted(name)

    @rule(name=st.sampled_from(PODS), message=st.sampled_from(["0/1 no.", LONG * 100]))
    def pod_is_refused(self, name: str, message: str) -> None:
        if name in self.world.pods:
            self.world.refuse(name, message)

    @rule(
        name=st.sampled_from(GROUPS),
        needed=st.sampled_from(COUNTS),
        roles=st.none() | st.dictionaries(st.sampled_from(ROLES), st.sampled_from(COUNTS), max_size=3),
        queue=st.sampled_from(QUEUES),
        least=st.none() | quantities,
        phase=st.sampled_from(["", "Pending", "Inqueue", "Running", "Unknown", "Completed"]),
        again=st.booleans(),
    )
    def group_comes_or_changes(
        self, name: str, needed: int, roles: Any, queue: str, least: Any, phase: str, again: bool
    ) -> None:
        meta = Meta(name=name, namespace=NAMESPACE, uid=f"uid-{name}{again}")
        spec = PodGroupSpec(needed, roles, queue, "high", least)
        self.world.add(PodGroup(meta, spec, PodGroupStatus(phase)))

    @rule(name=st.sampled_from(GROUPS))
    def group_goes(self, name: str) -> None:
        self.world.ledger.intake.drop_group(GroupKey(f"{NAMESPACE}/{name}"), Origin.VOLCANO)

    @rule(
        name=st.sampled_from(QUEUES[1:]),
        weight=st.sampled_from(COUNTS),
        amounts=st.tuples(*[st.none() | quantities] * 3),
        priority=st.sampled_from(COUNTS),
        state=st.sampled_from(["", "Open", "Closed", LONG]),
        parent=st.sampled_from(QUEUES),
        strategy=st.sampled_from(["", "fifo", "traverse", LONG]),
    )
    def queue_comes_or_changes(self, name: str, weight: int, amounts: Any, **of: Any) -> None:
        capability, guarantee, deserved = amounts
        spec = QueueSpec(
            weight=weight,
            capability=capability,
            deserved=deserved,
            guarantee=Guarantee(guarantee),
            priority=of["priority"],
            parent=of["parent"],
            dequeue_strategy=of["strategy"],
            state=of["state"],
        )
        self.world.add(Queue(Meta(name=name, uid=f"uid-{name}"), spec))

    @rule(name=st.sampled_from(QUEUES[1:]))
    def queue_goes(self, name: str) -> None:
        self.world.ledger.intake.drop_queue(name)

    @rule(value=st.sampled_from(COUNTS))
    def priority_class_changes(self, value: int) -> None:
        self.world.add(PriorityClass(Meta(name="high"), value))

    # ---- what kubelets write

    @rule(name=st.sampled_from(NODES), offers=quantities, cordoned=st.booleans())
    def node_comes_or_changes(self, name: str, offers: Mapping[str, Any], cordoned: bool) -> None:
        known = self.world.nodes.get(name)
        if not self.bring(node(name, cordoned=cordoned, more=offers)):
            self._restore(self.world.nodes, name, known)

    @staticmethod
    def _restore(nodes: dict[str, Node], name: str, known: Node | None) -> None:
        del nodes[name]
        if known is not None:
            nodes[name] = known

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        if name in self.world.nodes:
            self.world.drop_node(name)

    # ---- what the scheduler asks

    @rule(name=st.sampled_from(PODS), offered=st.lists(st.sampled_from((*NODES, "unknown")), unique=True))
    def filter_asks(self, name: str, offered: list[str]) -> None:
        if name in self.world.pods:
            self.world.answer(name, offered)
            self.world.ledger.assumed_pods.fullness(Uid(f"uid-{name}"), offered)

    @rule(name=st.sampled_from(PODS), where=st.sampled_from((*NODES, "unknown")))
    def bind_is_called(self, name: str, where: str) -> None:
        if name in self.world.pods and not self.world.pods[name].spec.node_name:
            self.world.hold(name, where)

    @rule(group=st.sampled_from(GROUPS))
    def barrier_looks(self, group: str) -> None:
        self.world.confirm(group)

    @rule(name=st.sampled_from(PODS))
    def call_ends(self, name: str) -> None:
        if name in self.world.pods:
            self.world.release(name)

    @rule(claimant=st.sampled_from(PODS), where=st.sampled_from(NODES))
    def preemption_is_asked(self, claimant: str, where: str) -> None:
        victims = [Uid(f"uid-{name}") for name in PODS]
        self.world.ledger.preemptions.grant_nodes(Uid(f"uid-{claimant}"), {where: victims})

    @rule(seconds=st.sampled_from([0.5, 20.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    # ---- what always holds

    @invariant()
    def every_cycle_ends(self) -> None:
        decisions = self.world.decide()
        self.world.ledger.publish(decisions)
        assert decisions.groups.keys() == self.world.ledger.snapshot().groups.keys()
        assert not any(len(group.detail) > 20_000 for group in decisions.groups.values())
        assert not any(group.fault for group in decisions.groups.values()), (
            "the guard is for unforeseen faults"
        )

    @invariant()
    def nodes_have_what_claims_leave(self) -> None:
        for name, offers, idle, claims in self.world.ledger.nodes():
            sums: dict[str, int] = {}
            for claim in claims:
                add(sums, claim.pod.shape.requests)
            assert idle == {resource: n - sums.get(resource, 0) for resource, n in offers.items()}, name
            self._is_written(name, offers, claims)

    def _is_written(self, name: str, offers: Mapping[str, int], claims: Any) -> None:
        capacity = self.world.ledger.claims.capacity
        row, columns = capacity.row(name), capacity.columns
        assumed: dict[str, int] = {}
        for claim in claims:
            add(assumed, claim.pod.shape.requests if claim.is_fixed else {})
        for column, resource in enumerate(columns.names):
            left = offers.get(resource, 0) - assumed.get(resource, 0)
            assert columns.capacity[row, column] == max(left, -(2**60))
        assert set(offers) <= set(columns.names)

    @invariant()
    def columns_are_those_of_nodes(self) -> None:
        names = self.world.ledger.snapshot().dimensions
        resources = {name for _, offers, _, _ in self.world.ledger.nodes() for name in offers}
        assert set(names) == resources | {"cpu", "memory", "pods"}
        assert len(names) == len(set(names))

    @invariant()
    def queues_have_what_their_groups_have(self) -> None:
        snapshot = self.world.ledger.snapshot()
        held: Counter[tuple[str, str]] = Counter()
        for group in snapshot.groups.values():
            held.update({(group.queue, name): n for name, n in group.allocated.items()})
        for name, queue in snapshot.queues.items():
            holdings = {resource: held[name, resource] for resource in snapshot.dimensions}
            assert dict(queue.allocated) == {resource: n for resource, n in holdings.items() if n}

    @invariant()
    def terms_count_the_selected_pods(self) -> None:
        assumed = [claim for claim in self.world.ledger.claims if claim.is_fixed]
        occupancy = self.world.ledger.snapshot().occupancy
        for term, by_node in [*occupancy.selected_counts.items()][:20]:
            ports = Counter(
                each.node for each in assumed if term.matches(each.pod.namespace, each.pod.labels)
            )
            assert by_node == ports

    def teardown(self) -> None:
        """Check that nothing is remembered of objects once all are gone."""
        if not hasattr(self, "world"):
            return
        self.world.delete(*self.world.pods)
        for name in GROUPS:
            self.group_goes(name)
        self._twice(self.every_cycle_ends)
        assert not list(self.world.ledger.claims)
        assert not self.world.ledger.claims.capacity._sums
        assert not self.world.ledger.snapshot().groups
        assert all(not queue.allocated for queue in self.world.ledger.snapshot().queues.values())
        assert not self.world.ledger.snapshot().occupancy.selected_counts

    @staticmethod
    def _twice(work: Callable[[], None]) -> None:
        for _ in range(2):
            work()


@pytest.mark.hypothesis
def test_no_cycle_raises() -> None:
    run_state_machine_as_test(
        Hostile,
        settings=settings(max_examples=examples(20), stateful_step_count=25, report_multiple_bugs=False),
    )
