"""Levels of topologies that new objects name: unknown ones, and those that contradict each other."""

from typing import Any

import pytest

from extender.api import keys
from tests.domain.builders import node
from tests.domain.test_topologies import topology
from tests.rows import each_of
from tests.webhooks.bench import Bench

Json = dict[str, Any]
RACK, BLOCK = "topology.kubernetes.io/rack", "topology.kubernetes.io/block"
PLAIN = "example.com/row"
TYPO_LEVEL = "topology.kubernetes.io/racks"
TYPO_WARNING = (
    f"invalid value {TYPO_LEVEL!r}, which no topology has as a level and no node as a label; "
    f"did you mean {RACK}?"
)
GROUP = {"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": "PodGroup"}
JOB = {"group": "batch", "version": "v1", "kind": "Job"}
POD = {"version": "v1", "kind": "Pod"}
NATIVE_KIND = {"group": "scheduling.k8s.io", "version": "v1beta1", "kind": "PodGroup"}
CONTAINERS: Json = {"schedulerName": "muster", "containers": [{"name": "c"}]}


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.ledger.intake.set_node(node("n", labels={PLAIN: "1"}))
    bench.ledger.intake.set_topology(topology("network", BLOCK, RACK))
    return bench


def group(annotations: Json | None = None, owner: str = "", **spec: Any) -> Json:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "1", "controller": True}]
    meta: Json = {"name": "g", "namespace": "team", "annotations": annotations or {}}
    return {
        "metadata": {**meta, "ownerReferences": owners if owner else []},
        "spec": {"minMember": 1, **spec},
    }


def job(annotations: Json) -> Json:
    template = {"metadata": {"annotations": annotations}, "spec": CONTAINERS}
    return {"metadata": {"name": "j", "namespace": "team"}, "spec": {"template": template}}


@each_of(
    group({keys.REQUIRED_TOPOLOGY: TYPO_LEVEL}),
    group({keys.KUEUE_PREFERRED_TOPOLOGY: TYPO_LEVEL}),
    group(networkTopology={"mode": "hard", "highestTierAllowed": 1}),
    group(subGroupPolicy=[{"networkTopology": {"highestTierName": "rack"}}]),
)
def test_a_group_with_an_unknown_level_is_refused(thing: Json, *, bench: Bench) -> None:
    assert "LevelNotFound" in bench.faults("/podgroups/validate", thing, kind=GROUP)


@each_of(
    group({keys.REQUIRED_TOPOLOGY: RACK}),
    group({keys.REQUIRED_TOPOLOGY: PLAIN}),
    group({keys.REQUIRED_TOPOLOGY: TYPO_LEVEL}, owner="made-by-a-controller"),
    group(networkTopology={"mode": "hard"}),
    group({keys.REQUIRED_TOPOLOGY: ""}, networkTopology="x"),
)
def test_other_groups_are_not(thing: Json, *, bench: Bench) -> None:
    assert "LevelNotFound" not in bench.faults("/podgroups/validate", thing, kind=GROUP)


@each_of((1, False), (2, False), (3, True), (9, False))
def test_a_tier_above_all_hyper_nodes_is_known(tier: int, is_refused: bool, *, bench: Bench) -> None:
    for known in (1, 2, 4):
        bench.ledger.intake.set_topology(topology(f"t{known}", f"tier:{known}"))
    new_group = group(networkTopology={"mode": "hard", "highestTierAllowed": tier})
    assert ("LevelNotFound" in bench.faults("/podgroups/validate", new_group, kind=GROUP)) is is_refused


def test_a_refusal_names_the_nearest_level(bench: Bench) -> None:
    answer = bench.ask("/podgroups/validate", group({keys.REQUIRED_TOPOLOGY: TYPO_LEVEL}), kind=GROUP)
    assert f"metadata.annotations[{keys.REQUIRED_TOPOLOGY}]: {TYPO_WARNING}" in answer["status"]["message"]
    assert TYPO_WARNING not in str(answer.get("warnings"))
    far = bench.ask("/podgroups/validate", group({keys.REQUIRED_TOPOLOGY: "x"}), kind=GROUP)
    assert f"must be one of {BLOCK}, {RACK}" in far["status"]["message"]


def test_an_update_is_refused_only_for_a_new_unknown_level(bench: Bench) -> None:
    old, new = group({keys.REQUIRED_TOPOLOGY: TYPO_LEVEL}), group({keys.REQUIRED_TOPOLOGY: "other"})
    more: Json = {"kind": GROUP, "oldObject": old}
    assert bench.faults("/podgroups/validate", old, "UPDATE", **more) == []
    assert bench.faults("/podgroups/validate", new, "UPDATE", **more) == ["LevelNotFound"]


def test_no_level_is_unknown_while_there_are_no_nodes() -> None:
    answer = Bench().ask("/podgroups/validate", group({keys.REQUIRED_TOPOLOGY: TYPO_LEVEL}), kind=GROUP)
    assert "level" not in str(answer)


@each_of(
    ("/jobs/validate", JOB, job({keys.REQUIRED_TOPOLOGY: TYPO_LEVEL})),
    (
        "/pods/validate",
        {"version": "v1", "kind": "Pod"},
        {**group({keys.REQUIRED_TOPOLOGY: TYPO_LEVEL}), "spec": CONTAINERS},
    ),
    (
        "/other-podgroups/validate",
        NATIVE_KIND,
        group(schedulingConstraints={"topology": [{"key": TYPO_LEVEL}]}),
    ),
)
def test_other_objects_get_a_warning(path: str, kind: Json, thing: Json, *, bench: Bench) -> None:
    assert TYPO_WARNING in str(bench.ask(path, thing, kind=kind)["warnings"])


def contradictions(bench: Bench, thing: Json, kind: Json = GROUP) -> list[str]:
    path = "/podgroups/validate" if kind == GROUP else "/jobs/validate"
    return [
        warning
        for warning in bench.ask(path, thing, kind=kind).get("warnings", [])
        if "does not count" in warning
    ]


def test_a_level_that_another_field_overrules_is_named(bench: Bench) -> None:
    both = {keys.REQUIRED_TOPOLOGY: RACK, keys.KUEUE_REQUIRED_TOPOLOGY: BLOCK}
    own, kueues = (f"metadata.annotations[{key}]" for key in both)
    text = f"{kueues}: {BLOCK!r} does not count: {own} names {RACK!r}"
    assert contradictions(bench, group(both)) == [text]
    assert contradictions(bench, job(both), JOB) == [
        text.replace("metadata.", "spec.template.metadata."),
    ]
    network = group(both, networkTopology={"highestTierAllowed": 1})
    assert [each.partition(":")[0] for each in contradictions(bench, network)] == [own, kueues]


@each_of(
    {keys.REQUIRED_TOPOLOGY: RACK, keys.KUEUE_REQUIRED_TOPOLOGY: RACK},
    {keys.REQUIRED_TOPOLOGY: BLOCK, keys.KUEUE_PREFERRED_TOPOLOGY: RACK},
)
def test_requests_that_add_up_do_not_contradict(annotations: Json, *, bench: Bench) -> None:
    assert contradictions(bench, group(annotations)) == []


@each_of(
    ("/podgroups/validate", GROUP, group({keys.ON_LOST_DOMAIN: "move"}), ""),
    ("/other-podgroups/validate", NATIVE_KIND, group({keys.ON_LOST_DOMAIN: "move"}), ""),
    ("/jobs/validate", JOB, job({keys.ON_LOST_DOMAIN: "move"}), "spec.template."),
    ("/pods/validate", POD, {**group({keys.ON_LOST_DOMAIN: "move"}), "spec": CONTAINERS}, ""),
)
def test_an_unknown_value_of_on_lost_domain_is_refused(
    path: str, kind: Json, thing: Json, template: str, *, bench: Bench
) -> None:
    field = f"{template}metadata.annotations[{keys.ON_LOST_DOMAIN}]"
    answer = bench.ask(path, thing, kind=kind)
    assert answer["status"]["message"].endswith(f"{field}: invalid value 'move': must be wait or restart")
    assert bench.faults(path, thing, "UPDATE", kind=kind, oldObject=thing) == []


@each_of("wait", "restart")
def test_the_known_values_of_on_lost_domain_are_admitted(value: str, *, bench: Bench) -> None:
    answer = bench.ask("/podgroups/validate", group({keys.ON_LOST_DOMAIN: value}), kind=GROUP)
    assert answer["allowed"]
    assert "warnings" not in answer
