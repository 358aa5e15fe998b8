"""Pods that request devices by claims or extended resources: amounts of one resource for each class."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from extender.api.objects.devices import (
    ClaimSpec,
    DeviceClaim,
    DeviceRequest,
    ExactRequest,
)
from extender.api.objects.pods import Pod, PodClaim
from extender.domain.model.device_requests import ClaimKey
from extender.domain.model.reasons import Reason
from tests.domain.builders import NAMESPACE, group, node, pod, queue
from tests.domain.world import World
from tests.domain.world import gang as plain_gang
from tests.rows import each_of

GPU = "deviceclass/gpu"


def claim(*requests: ExactRequest | None) -> ClaimSpec:
    """Return the spec of a claim; None: a request with alternatives."""
    named = [DeviceRequest(f"r{number}", exactly) for number, exactly in enumerate(requests)]
    return ClaimSpec(DeviceClaim(named))


def asking(name: str, group: str, templates: Sequence[str] = ("two",), **more: Any) -> Pod:
    """Return a pod with a claim of each of `templates`."""
    new_pod = pod(name, group, **more)
    claims = [PodClaim(template, resource_claim_template_name=template) for template in templates]
    return replace(new_pod, spec=replace(new_pod.spec, resource_claims=claims))


def world(*objects: Any, logical: Sequence[str] = (), **gpus: int) -> World:
    """Return a world with nodes of so many devices, and a template of two."""
    cluster = World(*(node(name, "32") for name in gpus), *objects, logical=logical)
    cluster.ledger.intake.set_device_class("gpu", GPU)
    cluster.ledger.intake.set_claim(ClaimKey(NAMESPACE, "two"), claim(ExactRequest("gpu", count=2)))
    for name, number in gpus.items():
        cluster.ledger.intake.set_devices(name, {GPU: number})
    return cluster


def gang(name: str, members: int, **more: Any) -> list[Any]:
    return [
        group(name, members, more.pop("queue", "")),
        *(asking(f"{name}-{n}", name, **more) for n in range(members)),
    ]


def test_a_gang_gets_nodes_with_enough_devices() -> None:
    found = world(gang("g", 3), a=4, b=3).settle()
    assert sorted(found.plan("g").values()) == ["a", "a", "b"]


def test_a_gang_waits_for_devices_and_says_how_many_there_are() -> None:
    found = world(gang("first", 1), gang("g", 3), a=6).settle()
    assert found.reason("g") is Reason.NO_ROOM
    assert found.detail("g").startswith(f"{GPU}: 6 needed, 4 left")


def test_more_devices_than_there_are_never_fit() -> None:
    found = world(gang("g", 3), a=4).settle()
    assert found.reason("g") is Reason.NEVER_FITS
    assert found.detail("g").startswith(f"{GPU}: 6 needed, 4 there")


def test_a_queue_limits_its_devices() -> None:
    limited = queue("q", capability={GPU: "2"})
    found = world(limited, gang("one", 1, queue="q"), gang("two", 1, queue="q"), a=8).settle()
    assert found.plan("one")
    assert not found.plan("two")
    assert found.reason("two") is Reason.QUEUE_CEILING


@each_of(
    (claim(ExactRequest("gpu")), 1),
    (claim(ExactRequest("gpu", count=2), ExactRequest("gpu", count=1)), 3),
    (claim(ExactRequest("gpu", allocation_mode="All")), 1),
    (claim(ExactRequest("gpu", count=2, admin_access=True)), 0),
    (claim(None), 0),
)
def test_a_template_counts_the_least_number_of_devices_that_it_takes(spec: ClaimSpec, devices: int) -> None:
    for offered in range(4):
        found = world(group("g", 1), a=offered)
        found.ledger.intake.set_claim(ClaimKey(NAMESPACE, "t"), spec)
        assert bool(found.add(asking("p", "g", ["t"])).settle().plan("g")) is (offered >= devices)


def test_a_template_that_comes_after_its_pods_counts() -> None:
    found = world(asking("p", "g", ["later"]), group("g", 1), a=2)
    found.ledger.intake.set_claim(ClaimKey(NAMESPACE, "later"), claim(ExactRequest("gpu", count=3)))
    assert found.settle().reason("g") is Reason.NEVER_FITS


def test_both_names_of_an_extended_resource_are_one_amount() -> None:
    """As is a claim of the class, on a node where a device plugin offers some."""
    implicit = pod("implicit", "g", more={"deviceclass.resource.kubernetes.io/gpu": "2"})
    explicit = pod("explicit", "g", more={"example.com/gpu": "1"})
    found = World(node("a", "32", more={"example.com/gpu": "1"}), group("g", 3), implicit, explicit)
    intake = found.ledger.intake
    intake.set_claim(ClaimKey(NAMESPACE, "two"), claim(ExactRequest("gpu", count=2)))
    found.add(asking("claiming", "g"))
    intake.set_device_class("gpu", "example.com/gpu")
    intake.set_devices("a", {"example.com/gpu": 3})
    assert found.settle().reason("g") is Reason.NEVER_FITS
    intake.set_devices("a", {"example.com/gpu": 4})
    assert len(found.settle().plan("g")) == 3


def sharing(name: str, group: str, claim: str) -> Pod:
    """Return a pod that names a claim."""
    new_pod = pod(name, group)
    return replace(new_pod, spec=replace(new_pod.spec, resource_claims=[PodClaim("gpu", claim)]))


def test_a_claim_that_members_share_counts_once() -> None:
    found = world(group("g", 2), *(sharing(f"g-{n}", "g", "four") for n in range(3)), a=4)
    four = ClaimKey(NAMESPACE, "four", is_template=False)
    found.ledger.intake.set_claim(four, claim(ExactRequest("gpu", count=4)))
    assert len(found.settle().plan("g")) == 2
    found.add(gang("other", 1)).settle()
    assert found.detail("other").startswith(f"{GPU}: 2 needed, 0 left")
    found.delete("g-0").settle()
    assert found.detail("other").startswith(f"{GPU}: 2 needed, 0 left"), "it counts for another member"
    found.delete("g-1", "g-2").settle()
    assert found.plan("other")


@each_of("deviceclass/gpu", "deviceclass.resource.kubernetes.io/gpu", "example.com/gpu")
def test_a_queue_may_use_any_name_of_the_resource(name: str) -> None:
    limited = queue("q", capability={name: "2"})
    found = world(limited, gang("one", 1, queue="q"), gang("two", 1, queue="q"), a=0)
    found.ledger.intake.set_devices("a", {"example.com/gpu": 8})
    found.ledger.intake.set_device_class("gpu", "example.com/gpu")
    found.settle()
    assert found.plan("one")
    assert found.reason("two") is Reason.QUEUE_CEILING


def test_a_class_that_is_not_counted_refuses_no_pod() -> None:
    found = world(gang("g", 2), a=0)
    found.ledger.intake.set_device_class("gpu", "")
    assert len(found.settle().plan("g")) == 2


def test_a_node_that_gets_devices_back_is_tried_again() -> None:
    """The scheduler may still have counted them when it refused the pod there."""
    found = world(gang("g", 1), a=2).settle().ungate("g-0")
    found.refuse("g-0", "0/1 nodes are available: 1 cannot allocate all claims.")
    found.pass_time(60)
    while found.settle().reason("g") is Reason.BACKING_OFF:
        found.advance(1)
    assert not found.plan("g")
    found.ledger.intake.set_devices("a", {GPU: 2})
    assert not found.settle().plan("g")
    found.ledger.intake.set_devices("a", {GPU: 2}, are_freed=True)
    assert found.settle().plan("g")


MEMORY = "example.com/memory"


def test_a_queue_limits_several_resources_by_one_that_stands_for_them() -> None:
    """A GPU counts for 80, and one of its parts for 10; nodes offer both in the same proportion."""
    found = World(
        node("a", "32", more={"example.com/gpu": "4", "example.com/part": "8"}),
        queue("q", capability={MEMORY: "100"}),
        plain_gang("one", 1, queue="q", more={"example.com/gpu": "1"}),
        plain_gang("parts", 2, queue="q", more={"example.com/part": "1"}),
        plain_gang("rest", 1, queue="q", more={"example.com/part": "1"}),
        logical=[f"{MEMORY}=80*example.com/gpu+10*example.com/part"],
    ).settle()
    assert (len(found.plan("one")), len(found.plan("parts")), len(found.plan("rest"))) == (1, 2, 0)
    assert found.detail("rest") == f"queue q: {MEMORY}: 100 held + 10 asked > 100"
    assert found.queue("q").requested[MEMORY] == 110


def test_a_claim_counts_for_what_its_devices_stand_for() -> None:
    found = world(logical=[f"{MEMORY}=80*{GPU}"], a=4)
    found.add(queue("q", capability={MEMORY: "200"}), gang("g", 1, queue="q"), gang("h", 1, queue="q"))
    found.settle()
    assert found.plan("g")
    assert found.detail("h") == f"queue q: {MEMORY}: 160 held + 160 asked > 200"
