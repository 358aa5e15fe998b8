"""Claims of devices that several pods use: when they are missing, change during a start, or are allocated."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.devices import (
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    ClaimSpec,
    ClaimStatus,
    ClaimUser,
    Device,
    DeviceClass,
    ExactRequest,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from extender.api.objects.pods import (
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodClaim,
    PodClaimStatus,
    PodStatus,
    Requirement,
    SchedulingGroup,
)
from extender.api.objects.queues import (
    GangPolicy,
    NativePodGroup,
    NativePodGroupSpec,
    NativePodGroupStatus,
    SchedulingPolicy,
)
from extender.domain.ledger.devices import DeviceInventory
from extender.domain.model.device_requests import ClaimKey
from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import NAMESPACE, group, node, pod
from tests.domain.job_world import JobWorld, job, pod_of, podgroup_name
from tests.domain.test_devices import GPU, asking, claim, sharing
from tests.domain.world import World
from tests.rows import each_of

FOUR = claim(ExactRequest("gpu", count=4))
HALF_CLAIM = claim(ExactRequest("gpu", count=2))


class Claims:
    """Claims of a world with nodes of four devices, where missing claims hold pods back."""

    def __init__(self, *objects: Any, nodes: str = "ab") -> None:
        self.world = World(*(node(name, "32") for name in nodes), *objects)
        self.inventory = DeviceInventory(self.world.ledger.intake)
        self.world.ledger.intake.expect_claims(lambda: True)
        self.world.ledger.intake.set_device_class("gpu", GPU)
        for name in nodes:
            self.world.ledger.intake.set_devices(name, {GPU: 4})

    def put(
        self,
        name: str = "four",
        uid: str = "first",
        on: str = "",
        spec: ClaimSpec = FOUR,
        users: str = "pods",
        **meta: Any,
    ) -> None:
        """Record a claim. `on`: the node on which it is allocated; `users`: for pods, or for none."""
        at = Requirement("metadata.name", "In", [on])
        allocation = Allocation(node_selector=NodeSelector([NodeSelectorTerm(match_fields=[at])]))
        reserved = [ClaimUser(users)] if users else None
        status = ClaimStatus(allocation, reserved) if on else ClaimStatus()
        whole = Meta(name=name, namespace=NAMESPACE, uid=uid, **meta)
        self.inventory.set_claim(ResourceClaim(whole, spec, status))

    def drop(self, name: str = "four", uid: str = "first") -> None:
        self.inventory.drop_claim(NAMESPACE, name, uid)


def shared_by(members: int) -> list[Any]:
    return [group("g", members), *(sharing(f"g-{n}", "g", "four") for n in range(members))]


def hold(world: World) -> None:
    world.hold("g-0", world.plan("g")["g-0"])


def bind(world: World) -> None:
    for name, at in world.plan("g").items():
        world.hold(name, at)
    first, other = world.confirm("g").claims_to_post
    world.bind(first.pod.name, first.node)
    world.release(other.pod.name)


def replace_claim(claims: Claims) -> None:
    claims.drop()
    claims.put(uid="second")


CHANGES: dict[str, Callable[[Claims], None]] = {
    "deleted": Claims.drop,
    "being deleted": lambda claims: claims.put(deletion_timestamp="2026-01-01T00:00:00Z"),
    "replaced": replace_claim,
    "replaced unseen": lambda claims: claims.put(uid="second"),
}
STAGES: dict[str, Callable[[World], None]] = {"planned": lambda _: None, "held": hold, "bound": bind}


@each_of(*((change, stage) for change in CHANGES for stage in STAGES))
def test_a_claim_that_goes_ends_the_start_and_the_next_one_begins_another(change: str, stage: str) -> None:
    claims = Claims(*shared_by(2))
    claims.put()
    world = claims.world.settle()
    assert world.verdict("g") is Verdict.STARTING
    STAGES[stage](world)
    CHANGES[change](claims)
    assert world.confirm("g").claims_to_post == (), "nothing is bound with the former claim"
    world.settle()
    assert world.verdict("g") is Verdict.WAITING
    assert world.detail("g").endswith("ResourceClaim four was deleted")
    assert world.plan("g") == {}
    bound = [name for name, each in world.pods.items() if each.spec.node_name]
    assert list(world.decision("g").undo) == [f"uid-{name}" for name in bound]
    world.delete(*bound).add(*(sharing(name, "g", "four") for name in bound))
    claims.put(uid="third")
    world.pass_time(10.0)
    assert world.verdict("g") is Verdict.STARTING
    assert len(world.plan("g")) == 2


def test_pods_wait_for_a_claim_that_does_not_exist_and_others_start() -> None:
    claims = Claims(*shared_by(2), group("other", 1), pod("other-0", "other"))
    world = claims.world.settle()
    assert (world.reason("g"), world.plan("g")) == (Reason.NOT_ENOUGH_MEMBERS, {})
    assert world.detail("g").endswith("2 held back: ResourceClaim four does not exist")
    assert world.plan("other")
    claims.put()
    assert len(world.settle().plan("g")) == 2


def test_a_spare_member_without_a_claim_delays_no_other() -> None:
    claims = Claims(group("g", 1), pod("g-0", "g"), sharing("g-1", "g", "four"))
    assert list(claims.world.settle().plan("g")) == ["g-0"]


def with_claims(of: Pod, *names: str) -> Pod:
    """Return a pod for whose templates claims exist."""
    status = [PodClaimStatus(name, f"{name}-x") for name in names]
    return replace(of, status=PodStatus(resource_claim_statuses=status))


def test_a_template_is_needed_until_its_claim_exists() -> None:
    claims = Claims(group("g", 1), asking("g-0", "g", ["two"]))
    world = claims.world.settle()
    assert world.detail("g").endswith("1 held back: ResourceClaimTemplate two does not exist")
    world.add(with_claims(asking("g-0", "g", ["two"]), "two"))
    assert world.settle().plan("g")


def test_members_go_to_the_node_on_which_their_claim_is_allocated() -> None:
    claims = Claims(*shared_by(3), nodes="abc")
    claims.put(on="b")
    assert set(claims.world.settle().plan("g").values()) == {"b"}


def test_a_claim_that_no_pod_uses_binds_no_pod() -> None:
    """The scheduler frees its devices if the pods find no place there."""
    claims = Claims(*shared_by(1))
    claims.put(on="gone", users="")
    assert claims.world.settle().plan("g")


def test_a_claim_that_others_allocate_elsewhere_moves_a_start_or_ends_it() -> None:
    claims = Claims(*shared_by(2))
    claims.put()
    world = claims.world.settle()
    (used_node,) = set(world.plan("g").values())
    hold(world)
    claims.put(on="ab".replace(used_node, ""))
    assert world.confirm("g").claims_to_post == (), "no member is bound where the claim is not"
    world.release("g-0")
    world.settle()
    assert set(world.plan("g").values()) == {"ab".replace(used_node, "")}
    claims.put(on="gone")
    world.settle()
    assert world.plan("g") == {}
    demand = "what the required node affinity or a ResourceClaim asks for (metadata.name In gone)"
    assert world.detail("g").startswith(f"no node has {demand}")


def test_claims_on_different_nodes_are_named() -> None:
    both = [PodClaim("one", "one"), PodClaim("other", "other")]
    members = [pod(f"g-{n}", "g") for n in range(2)]
    claimed = [replace(member, spec=replace(member.spec, resource_claims=both)) for member in members]
    claims = Claims(group("g", 2), *claimed)
    claims.put("one", "u1", on="a", spec=HALF_CLAIM)
    claims.put("other", "u2", on="b", spec=HALF_CLAIM)
    world = claims.world.settle()
    where = "its ResourceClaims are allocated on different nodes: one on a and other on b"
    assert world.detail("g").endswith(f"2 held back: {where}")
    claims.drop("other", "u2")
    claims.put("other", "u3", spec=HALF_CLAIM)
    assert set(world.settle().plan("g").values()) == {"a"}


def test_a_shared_claim_counts_while_any_of_its_pods_runs() -> None:
    claims = Claims(*shared_by(2), group("other", 1), asking("other-0", "other", ["two"]), nodes="a")
    claims.put()
    claims.world.ledger.intake.set_claim(ClaimKey(NAMESPACE, "two"), HALF_CLAIM)
    world = claims.world.start("g").finish("g-0").settle()
    assert world.detail("other").startswith(f"{GPU}: 2 needed, 0 left")
    world.finish("g-1").settle()
    assert world.plan("other")


SHARED = PodClaim("gpu", resource_claim_template_name="four")


def native(made: str = "") -> NativePodGroup:
    """Return a PodGroup of two with one claim for all of them. `made`: its object."""
    spec = NativePodGroupSpec(SchedulingPolicy(gang=GangPolicy(2)), resource_claims=[SHARED])
    status = NativePodGroupStatus(resource_claim_statuses=[PodClaimStatus("gpu", made)] if made else None)
    return NativePodGroup(Meta(name="g", namespace=NAMESPACE, uid="uid-g"), spec, status)


def in_group(name: str, claim: PodClaim = SHARED) -> Pod:
    new_pod = pod(name)
    spec = replace(new_pod.spec, scheduling_group=SchedulingGroup("g"), resource_claims=[claim])
    return replace(new_pod, spec=spec)


@each_of(True, False)
def test_a_claim_of_a_podgroup_counts_once_for_its_members(is_first: bool) -> None:
    """Whether the PodGroup or its pods come first."""
    claims = Claims(nodes="a")
    world, members = claims.world, [in_group("g-0"), in_group("g-1")]
    world.ledger.intake.set_claim(ClaimKey(NAMESPACE, "four"), FOUR)
    world.add(*([native(), *members] if is_first else [*members, native()]))
    assert len(world.settle().plan("g")) == 2


def test_a_claim_that_differs_from_that_of_the_podgroup_is_the_pod_s_own() -> None:
    own = replace(SHARED, name="own")
    claims = Claims(native(), in_group("g-0", own), in_group("g-1", own), nodes="a")
    claims.world.ledger.intake.set_claim(ClaimKey(NAMESPACE, "four"), FOUR)
    assert claims.world.settle().detail("g").startswith(f"{GPU}: 8 needed, 4 there")


def test_members_of_a_podgroup_go_where_its_claim_is_allocated() -> None:
    claims = Claims(native("g-gpu"), in_group("g-0"), in_group("g-1"), nodes="abc")
    claims.world.ledger.intake.set_claim(ClaimKey(NAMESPACE, "four"), FOUR)
    claims.put("g-gpu", on="c", users="podgroups")
    assert set(claims.world.settle().plan("g").values()) == {"c"}
    claims.put("g-gpu", on="c", uid="second")
    assert claims.world.settle().detail("g") == "ResourceClaim g-gpu was deleted"


def test_a_claim_shared_by_the_pods_of_a_job_counts_for_one_of_them() -> None:
    """Also once its controller has created them."""
    world, new_job = JobWorld(node("a", "32")), job("j", 3)
    world.ledger.intake.set_device_class("gpu", GPU)
    world.ledger.intake.set_devices("a", {GPU: 4})
    world.ledger.intake.set_claim(ClaimKey(NAMESPACE, "four", is_template=False), FOUR)
    template = new_job.spec["template"]
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "four"}]}
    template["spec"] |= claims
    world.stopped = True
    world.submit(new_job).work()
    assert len(world.decision(podgroup_name("j")).plan) == 3
    for number in range(3):
        found = pod_of(new_job, f"j-{number}")
        world.add(replace(found, spec=replace(found.spec, resource_claims=[PodClaim("gpu", "four")])))
    assert len(world.settle().plan(podgroup_name("j"))) == 3


def test_devices_of_an_allocated_claim_without_users_are_there_for_its_pods_alone() -> None:
    """A start that failed left the claim allocated."""
    claims = Claims(nodes="a")
    claims.inventory.set_class(DeviceClass(Meta(name="gpu")))
    spec = ResourceSliceSpec("d", "a", ResourcePool("a", 1, 1), [Device(f"g{n}") for n in range(4)])
    claims.inventory.set_slice(ResourceSlice(Meta(name="s"), spec))
    held = AllocatedDevices([AllocatedDevice("r0", "d", "a", f"g{n}") for n in range(4)])
    meta = Meta(name="four", namespace=NAMESPACE, uid="first")
    claims.inventory.set_claim(ResourceClaim(meta, FOUR, ClaimStatus(Allocation(held))))
    world = claims.world
    world.ledger.intake.set_claim(ClaimKey(NAMESPACE, "two"), HALF_CLAIM)
    world.add(group("other", 1), asking("other-0", "other", ["two"])).settle()
    assert world.detail("other").startswith(f"{GPU}: 2 needed, 0 left")
    world.delete("other-0").add(shared_by(2)).settle()
    assert len(world.plan("g")) == 2
    world.delete("g-0", "g-1").add(asking("other-0", "other", ["two"])).settle()
    assert world.detail("other").startswith(f"{GPU}: 2 needed, 0 left")


def test_of_members_that_share_a_claim_one_is_shown_until_it_is_allocated() -> None:
    """The scheduler would refuse the others meanwhile."""
    world = World(node("a", "32"), *shared_by(3), through_proxy=True)
    inventory = DeviceInventory(world.ledger.intake)
    world.ledger.intake.set_devices("a", {GPU: 4})
    meta, status = Meta(name="four", namespace=NAMESPACE, uid="u"), ClaimStatus(Allocation())
    inventory.set_claim(ResourceClaim(meta, FOUR))
    for name in list(world.pods):
        nominated = replace(world.ungate(name).pods[name].status, nominated_node_name="a")
        world.add(replace(world.pods[name], status=nominated))
    assert len(world.settle().shown()) == 1
    inventory.set_claim(ResourceClaim(meta, FOUR, status))
    assert len(world.settle().shown()) == 3


def test_members_that_share_a_claim_get_the_node_that_holds_all_of_them() -> None:
    """Node a has the devices, too, and only b has the cores."""
    world = World(node("a", "2"), node("b", "3"), node("c", "9"), *shared_by(3))
    inventory = DeviceInventory(world.ledger.intake)
    for name in "ab":
        world.ledger.intake.set_devices(name, {GPU: 4})
    meta = Meta(name="four", namespace=NAMESPACE, uid="u")
    inventory.set_claim(ResourceClaim(meta, FOUR))
    assert set(world.settle().plan("g").values()) == {"b"}
    world.add(node("b", "2")).settle()
    assert world.plan("g") == {}
    assert "kubernetes.io/hostname" in world.detail("g")
