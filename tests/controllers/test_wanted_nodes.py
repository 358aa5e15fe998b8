"""ProvisioningRequests: each kind of waiting members once. The name of a request stands for its content."""

import os
import subprocess
import sys

from extender.api.objects.pods import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from extender.api.objects.queues import Provisioning
from extender.controllers.provisioning import DesiredRequest, wanted_request
from extender.domain.model.shapes import Shapes
from extender.domain.model.wire_records import group_record, pod_record
from tests.domain.builders import HOSTNAME, group, pod

CLASS = Provisioning("some.example.com", {"ValidUntilSeconds": "60"})
TERMS = [PodAffinityTerm(HOSTNAME, LabelSelector({"a": "b"}), namespaces=[*"abcdefgh"])]
ANTI_AFFINITY = Affinity(pod_anti_affinity=PodAffinity(TERMS))


def request_for(
    *members: object, name: str = "g", provisioning: Provisioning = CLASS
) -> DesiredRequest | None:
    shapes = Shapes()
    records = [pod_record(member, shapes, is_ours=True) for member in members]  # type: ignore[arg-type]
    return wanted_request(group_record(group(name, 2, "q")), provisioning, records)


def name_of(*members: object, **options: object) -> str:
    found = request_for(*members, **options)  # type: ignore[arg-type]
    assert found is not None
    return found.name


def apart() -> str:
    """Return the name for members whose affinity names many namespaces, which are stored as a set."""
    return name_of(pod("g-0", "g", affinity=ANTI_AFFINITY))


def test_nodes_are_requested_only_for_waiting_members_without_other_gates() -> None:
    found = request_for(
        pod("g-0", "g"),
        pod("g-1", "g", on="n"),
        pod("g-2", "g", phase="Succeeded"),
        pod("g-3", "g", foreign_gate="theirs"),
        pod("g-4", "g"),
    )
    assert found is not None
    assert [(each.member.name, each.count) for each in found.pod_sets] == [("g-0", 2)]
    assert request_for(pod("g-1", "g", on="n")) is None


def test_the_name_of_a_request_differs_with_its_content() -> None:
    one = pod("g-0", "g")
    names = [
        name_of(one),
        name_of(one, pod("g-1", "g")),
        name_of(pod("g-0", "g", cpu="2")),
        name_of(pod("g-0", "g", selector={"zone": "a"})),
        name_of(one, name="h"),
        name_of(one, provisioning=Provisioning("another.example.com", CLASS.parameters)),
        name_of(one, provisioning=Provisioning(CLASS.class_name)),
        apart(),
    ]
    assert len(set(names)) == len(names)


def test_the_name_of_a_request_does_not_depend_on_existing_pods_and_their_order() -> None:
    large, small = pod("g-0", "g", cpu="2"), pod("g-1", "g")
    assert name_of(large, small) == name_of(pod("g-9", "g"), pod("g-7", "g", cpu="2"))


def test_the_name_of_a_request_is_valid_for_objects_and_labels() -> None:
    found = name_of(pod("g-0", "g"), name="a" * 39 + "." + "b" * 200)
    assert len(found) <= 63
    assert ".-" not in found


def test_the_name_is_the_same_in_every_process() -> None:
    code = "from tests.controllers.test_wanted_nodes import apart; print(apart())"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == apart()
