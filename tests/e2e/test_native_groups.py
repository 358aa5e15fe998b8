"""Kubernetes' own PodGroup, on an API server that serves it: off by default in the pinned releases."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from extender.domain.model.reasons import Reason
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import manifests
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.devices import Devices
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import POD_GROUPS, Resource
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Json, Stage
from tests.e2e.harness.waiting import wait_for

VERSIONS = {"1.36": "v1alpha2", "1.37": "v1beta1"}
VERSION = f"scheduling.k8s.io/{VERSIONS.get(KUBERNETES, 'none')}"
GROUPS = Resource(f"/apis/{VERSION}", "podgroups")
GATE = "--feature-gates=GenericWorkload=true"
CLAIMS_GATES = f"{GATE},DRAWorkloadResourceClaims=true"
OF_DOMAINS = f"{GATE},TopologyAwareWorkloadScheduling=true"
OF_COMPOSITES = f"{OF_DOMAINS},CompositePodGroup=true"
ALPHA = "scheduling.k8s.io/v1alpha3"
COMPOSITES = Resource(f"/apis/{ALPHA}", "compositepodgroups")
STOOD_WHOLE = "kube-muster.io/stood-whole"
HELD = "cannot hold 3 members"
SAYS_SCHEDULED = KUBERNETES not in ("1.36",)  # whether its status has the condition that Muster writes

pytestmark = pytest.mark.skipif(KUBERNETES not in VERSIONS, reason="before 1.36 there are none of this form")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """Yield a control plane that serves native groups."""
    is_old = KUBERNETES == "1.36"
    gate = GATE if is_old else f"{OF_COMPOSITES},DRAWorkloadResourceClaims=true"
    flags = (gate, f"--runtime-config={VERSION}=true{'' if is_old else f',{ALPHA}=true'}")
    with ControlPlane(
        kubernetes=KUBERNETES, users=manifests.service_accounts(), apiserver_flags=flags
    ) as made:
        manifests.apply(made.admin, *manifests.INSTALLED)
        yield made


SCHEDULER_WITH_GROUPS = pytest.param(
    (True, (CLAIMS_GATES,)),
    id="view of a scheduler of groups",
    marks=pytest.mark.skipif(KUBERNETES == "1.36", reason="alpha"),
)


PAIRS = [pytest.param((True, ()), id="view"), SCHEDULER_WITH_GROUPS, pytest.param((False, ()), id="gates")]
SCHEDULER_WITH_COMPOSITES = pytest.param((True, (OF_COMPOSITES,)), id="view of a scheduler of composites")
SCHEDULER_WITH_DOMAINS = pytest.param((True, (OF_DOMAINS,)), id="view of a scheduler of domains")


@pytest.fixture(params=PAIRS)
def muster(stage: Stage, muster_user: User, request: pytest.FixtureRequest) -> Muster:
    """Start Muster next to a scheduler without groups, or next to one that schedules them itself."""
    view, arguments = request.param
    made = stage.start_muster(user=muster_user, view=view)
    stage.start_sidecar(made, user=muster_user, arguments=arguments)
    return made


def create(stage: Stage, name: str, policy: Json, **spec: Json) -> None:
    body = {
        "apiVersion": VERSION,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": stage.namespace},
    }
    stage.api.create(GROUPS, {**body, "spec": {"schedulingPolicy": policy, **spec}})


def members(stage: Stage, muster: Muster, name: str, count: int, **spec: Any) -> list[str]:
    gated = muster.view_kubeconfig is None
    return stage.pods(name, count, gated=gated, schedulingGroup={"podGroupName": name}, **spec)


def scheduled(stage: Stage, name: str, kind: Resource = GROUPS) -> tuple[str, str, str]:
    """Return status, reason and message of a group's condition."""
    condition = f"{'Composite' if kind is COMPOSITES else ''}PodGroupInitiallyScheduled"
    for each in stage.api.get(kind, name, stage.namespace).get("status", {}).get("conditions", ()):
        if each["type"] == condition:
            return each["status"], each["reason"], each["message"]
    return ("", "", "")


def test_a_gang_starts_whole(stage: Stage, muster: Muster) -> None:
    create(stage, "a", {"gang": {"minCount": 3}})
    stage.nodes(1, cpu="2")
    gang = members(stage, muster, "a", 3)
    muster.wait_decision(stage.namespace, "a", verdict="Waiting", minMember=3, reason="NeverFits")
    assert stage.bound(gang) == {}
    if SAYS_SCHEDULED:
        waits = ("False", "Unschedulable", f"NeverFits: {Reason.NEVER_FITS.meaning}")
        wait_for(lambda: scheduled(stage, "a") == waits, what="its condition says why it waits")
    admin = Shell(stage.cluster, ADMIN, stage.namespace)
    whose, counted = "The pod's group a is a PodGroup of Kubernetes itself", "Members: 3 needed, 3 there"

    def knows_the_group() -> bool:
        answer = " ".join(admin.output("why", "a-0").split())
        return all(part in answer for part in (whose, counted, HELD))

    wait_for(knows_the_group, what="why knows the native group and its figures")
    stage.nodes(1, prefix="more")
    stage.wait_phase(gang)

    def recorded() -> bool:
        found = stage.api.get(GROUPS, "a", stage.namespace)
        return STOOD_WHOLE in found["metadata"].get("annotations", {})

    wait_for(recorded, what="the record that the group ran fully")
    if SAYS_SCHEDULED:
        wait_for(
            lambda: scheduled(stage, "a")[:2] == ("True", "Scheduled"), what="its condition says so, too"
        )
    assert stage.api.items(POD_GROUPS, stage.namespace) == []


@pytest.mark.skipif(KUBERNETES == "1.36", reason="their constraints are another form there")
@pytest.mark.parametrize("muster", [*PAIRS, SCHEDULER_WITH_DOMAINS], indirect=True)
def test_a_gang_starts_in_the_rack_that_holds_it_and_lost_members_are_replaced_there(
    stage: Stage, muster: Muster
) -> None:
    for rack, nodes, cpu in (("a", 1, "3"), ("b", 2, "4")):
        stage.nodes(nodes, prefix=rack, cpu=cpu, labels={"example.com/rack": rack})
    constraints = {"topology": [{"key": "example.com/rack"}]}
    create(stage, "a", {"gang": {"minCount": 2}}, schedulingConstraints=constraints)
    assert stage.api.get(GROUPS, "a", stage.namespace)["spec"]["schedulingConstraints"] == constraints
    gated = muster.view_kubeconfig is None
    gang = stage.pods("a", 2, gated=gated, cpu="3", schedulingGroup={"podGroupName": "a"})
    assert {*stage.wait_bound(gang).values()} == {"b0", "b1"}
    stage.wait_phase(gang)
    stage.delete_pods(["a-0"])
    stage.wait_phase(["a-0"], "Gone")
    again = stage.pods("a", 1, first=2, gated=gated, cpu="3", schedulingGroup={"podGroupName": "a"})
    assert {*stage.wait_bound([*again, "a-1"]).values()} == {"b0", "b1"}


def test_members_above_the_minimum_start_when_capacity_is_free(stage: Stage, muster: Muster) -> None:
    create(stage, "a", {"gang": {"minCount": 2}})
    stage.nodes(1, cpu="3")
    gang = members(stage, muster, "a", 4)
    wait_for(lambda: len(stage.bound(gang)) == 3, what="as many as fit")
    stage.nodes(1, prefix="more")
    stage.wait_phase(gang)


def test_pods_of_a_basic_group_start_each_on_its_own(stage: Stage, muster: Muster) -> None:
    create(stage, "a", {"basic": {}})
    stage.nodes(1, cpu="1")
    pods = members(stage, muster, "a", 2)
    wait_for(lambda: len(stage.bound(pods)) == 1, what="the one that fits")
    stage.nodes(1, prefix="more")
    stage.wait_phase(pods)


@pytest.mark.skipif(KUBERNETES == "1.36", reason="alpha")
def test_members_share_the_claim_of_their_group(stage: Stage, muster: Muster) -> None:
    """It counts once, and all go where it is allocated: a second gang finds no device."""
    if muster.view_kubeconfig is None:
        pytest.skip("the scheduler refuses such claims without the feature gates")
    stage.start_controller_manager(CLAIMS_GATES)
    devices = Devices(stage)
    try:
        *_, last = stage.nodes(3, cpu="8")
        devices.on(last, 4)
        for name in ("a", "b"):
            claims = devices.template(f"four-{name}", 4)["resourceClaims"]
            create(stage, name, {"gang": {"minCount": 3}}, resourceClaims=claims)
            gang = members(stage, muster, name, 3, resourceClaims=claims)
            if name == "a":
                assert {*stage.wait_bound(gang).values()} == {last}
        muster.wait_decision(stage.namespace, "b", verdict="Waiting", reason="NoRoom")
    finally:
        devices.end()


IN_WORKLOAD: Json = {"workloadRef": {"workloadName": "train", "templateName": "t"}}
of_composites = pytest.mark.parametrize("muster", [*PAIRS, SCHEDULER_WITH_COMPOSITES], indirect=True)
since_137 = pytest.mark.skipif(KUBERNETES == "1.36", reason="1.36 has no composites")


def has_started(stage: Stage, name: str, kind: Resource) -> bool:
    return scheduled(stage, name, kind)[:2] == ("True", "Scheduled")


def create_composite(stage: Stage, name: str, policy: Json, **spec: Any) -> None:
    meta = {"name": name, "namespace": stage.namespace}
    head = {"apiVersion": ALPHA, "kind": "CompositePodGroup", "metadata": meta}
    stage.api.create(COMPOSITES, {**head, "spec": {"schedulingPolicy": policy, **IN_WORKLOAD, **spec}})


def child(
    stage: Stage, muster: Muster, name: str, count: int, parent: str = "train", **spec: Any
) -> list[str]:
    """Create a PodGroup below a composite, with as many pods as it needs."""
    below = {"parentCompositePodGroupName": parent, **IN_WORKLOAD}
    create(stage, name, {"gang": {"minCount": count}}, **below)
    return members(stage, muster, name, count, **spec)


@since_137
@of_composites
def test_child_groups_of_a_composite_start_together(stage: Stage, muster: Muster) -> None:
    create_composite(stage, "train", {"gang": {"minGroupCount": 2}})
    stage.nodes(1, cpu="3")
    pods = child(stage, muster, "a", 2) + child(stage, muster, "b", 2)
    group = "compositepodgroup/train"
    muster.wait_decision(stage.namespace, group, verdict="Waiting", minMember=4, reason="NeverFits")
    assert stage.bound(pods) == {}
    waits = ("False", "Unschedulable", f"NeverFits: {Reason.NEVER_FITS.meaning}")
    wait_for(lambda: scheduled(stage, "train", COMPOSITES) == waits, what="the composite says why")
    wait_for(lambda: scheduled(stage, "a") == waits, what="so does a child group")
    admin = Shell(stage.cluster, ADMIN, stage.namespace)
    whose = "The pod's group a of CompositePodGroup train is a PodGroup of Kubernetes itself"

    def knows_the_tree() -> bool:
        answer = " ".join(admin.output("why", "a-0").split())
        return all(part in answer for part in (whose, "cannot hold 4 members"))

    wait_for(knows_the_tree, what="why knows the composite and its figures")
    stage.nodes(1, prefix="more")
    stage.wait_phase(pods)
    for name, kind in (("train", COMPOSITES), ("a", GROUPS), ("b", GROUPS)):
        wait_for(partial(has_started, stage, name, kind), what=f"{name} says that it started")
    found = stage.api.get(COMPOSITES, "train", stage.namespace)
    assert STOOD_WHOLE in found["metadata"].get("annotations", {})


@since_137
@of_composites
def test_the_child_group_that_fits_is_enough_and_the_other_follows_whole(
    stage: Stage, muster: Muster
) -> None:
    create_composite(stage, "train", {"gang": {"minGroupCount": 1}})
    stage.nodes(1, cpu="2")
    large, small = child(stage, muster, "large", 3), child(stage, muster, "small", 2)
    stage.wait_phase(small)
    assert stage.bound(large) == {}
    stage.nodes(1, prefix="more", cpu="3")
    stage.wait_phase(large)


@since_137
@of_composites
def test_all_pods_of_a_composite_share_its_rack(stage: Stage, muster: Muster) -> None:
    for rack, nodes in (("a", 3), ("b", 4)):
        stage.nodes(nodes, prefix=rack, cpu="4", labels={"example.com/rack": rack})
    constraints = {"topology": [{"key": "example.com/rack"}]}
    create_composite(stage, "train", {"gang": {"minGroupCount": 2}}, schedulingConstraints=constraints)
    pods = child(stage, muster, "a", 2, cpu="4") + child(stage, muster, "c", 2, cpu="4")
    assert {node[0] for node in stage.wait_bound(pods).values()} == {"b"}


@since_137
def test_an_invalid_tree_says_so_and_delays_no_other(stage: Stage, muster: Muster) -> None:
    stage.nodes(1, cpu="8")
    for name, parent in (("x", "y"), ("y", "x")):
        create_composite(stage, name, {"gang": {"minGroupCount": 1}}, parentCompositePodGroupName=parent)
    create_composite(stage, "fine", {"gang": {"minGroupCount": 1}})
    pods = child(stage, muster, "of-none", 1, "none") + child(stage, muster, "in-circle", 1, "x")
    stage.wait_phase(child(stage, muster, "other", 2, "fine"))
    circle = ("False", "Unschedulable", "InvalidSpec: CompositePodGroup y is below itself")
    wait_for(lambda: scheduled(stage, "y", COMPOSITES) == circle, what="the circle has a reason")
    lost = "InvalidSpec: CompositePodGroup none, the parent of PodGroup of-none, does not exist"
    wait_for(lambda: scheduled(stage, "of-none")[2] == lost, what="the parent that is missing has a name")
    assert stage.bound(pods) == {}
    create_composite(stage, "none", {"gang": {"minGroupCount": 1}})
    stage.wait_phase(pods[:1])
