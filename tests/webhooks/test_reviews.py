"""Reviews: malformed ones, other versions, the form of answers, and reviews before the sync."""

import json
from typing import Any

import pytest

from extender.api.objects.queues import QueueFlavor
from extender.webhooks.reviews import Malformed
from tests.domain.builders import flavor, node, queue, shared
from tests.rows import each_of
from tests.webhooks.bench import ALICE, VOLCANO, Bench, job, pod, pod_group

Json = dict[str, Any]
GOOD = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
PATHS = tuple(Bench().reviewer.paths)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@each_of(
    (b"", "truncated"),
    (b"{", "truncated"),
    (b"\xff", "invalid"),
    (b"[]", "array"),
    (json.dumps(GOOD).encode(), "request"),
    (json.dumps({**GOOD, "request": {"operation": "CREATE"}}).encode(), "$.request"),
    (json.dumps({**GOOD, "request": {"uid": 1, "operation": "CREATE"}}).encode(), "$.request.uid"),
    (b'{"x":' * 100_000, "(recursion|truncated)"),  # truncated: Python 3.14
)
def test_a_malformed_review_is_refused_with_the_path_of_the_fault(
    body: bytes, message: str, *, bench: Bench
) -> None:
    with pytest.raises(Malformed, match="(?i)" + message.replace("$", r"\$").replace(".", r"\.")):
        bench.reviewer.answer("/queues/validate", body)


@each_of(("apiVersion", "admission.k8s.io/v2"), ("kind", "ConversionReview"))
def test_another_version_gets_the_reviews_own_error(field: str, value: str, *, bench: Bench) -> None:
    review = {**GOOD, "request": {"uid": "7", "operation": "CREATE"}, field: value}
    answer = bench.send("/queues/validate", review)
    assert (answer["uid"], answer["allowed"]) == ("7", False)
    assert answer["status"]["message"].startswith(f"{field}: invalid value {value!r}: must be ")


@each_of(*PATHS)
def test_an_unregistered_operation_is_refused(path: str, *, bench: Bench) -> None:
    assert bench.faults(path, {"metadata": {"name": "x"}}, "CONNECT") == ["InvalidOperation"]


@each_of(*PATHS)
def test_an_object_of_another_kind_is_refused_with_its_path(path: str, *, bench: Bench) -> None:
    answer = bench.ask(path, {"metadata": {"name": 5}})
    assert (answer["allowed"], answer["status"]["code"]) == (False, 422)
    assert "$.metadata.name" in answer["status"]["message"]


@pytest.mark.parametrize("path", ["/jobs/mutate", "/jobs/validate", "/use/mutate"])
@pytest.mark.parametrize("levels", [400, 9000])  # a decoder reads the first
def test_a_job_that_is_nested_too_deeply_is_refused_unless_it_is_being_deleted(
    path: str, levels: int, bench: Bench
) -> None:
    template = {"spec": {"containers": [], "more": "DEEP"}}
    for leaving in (False, True):
        meta = {"name": "deep", **({"deletionTimestamp": "2026-11-01T08:00:00Z"} if leaving else {})}
        deep = {"metadata": meta, "spec": {"tasks": [{"name": "a", "replicas": 1, "template": template}]}}
        request = {"uid": "1", "operation": "CREATE", "object": deep, "kind": VOLCANO, "userInfo": ALICE}
        review = json.dumps({**GOOD, "request": request}).encode()
        body = review.replace(b'"DEEP"', b"[" * levels + b"]" * levels)
        answer = json.loads(bench.reviewer.answer(path, body))["response"]
        assert answer["allowed"] is leaving
        assert leaving or "nested" in answer["status"]["message"]


def test_a_refusal_is_a_status_for_people_and_for_programs(bench: Bench) -> None:
    answer = bench.ask("/podgroups/validate", pod_group("nowhere"))
    message = "there is no queue 'nowhere': create it, or name an existing one"
    assert answer == {
        "uid": "1",
        "allowed": False,
        "status": {
            "code": 403,
            "reason": "Forbidden",
            "message": f"spec.queue: {message}",
            "details": {"causes": [{"reason": "QueueNotFound", "field": "spec.queue", "message": message}]},
        },
    }


def test_a_delete_has_no_object(bench: Bench) -> None:
    assert bench.faults("/queues/validate", None, "DELETE", name="default") == ["ProtectedQueue"]
    assert bench.faults("/queues/validate", None, "DELETE", name="nowhere") == ["QueueNotFound"]
    old = {"metadata": {"name": "root"}}
    assert bench.faults("/queues/validate", None, "DELETE", oldObject=old) == ["ProtectedQueue"]


def test_before_the_sync_reviews_of_own_kinds_must_be_retried(bench: Bench) -> None:
    bench.synced = False
    for path, thing in (
        ("/podgroups/validate", pod_group("q")),
        ("/queues/validate", {"metadata": {"name": "q"}}),
    ):
        status = bench.ask(path, thing)["status"]
        assert (status["code"], status["details"]["retryAfterSeconds"]) == (503, 1)
        assert "try again" in status["message"]


def test_before_the_sync_other_kinds_pass_with_a_warning(bench: Bench) -> None:
    bench.synced = False
    for path, thing in (("/jobs/validate", job("nowhere")), ("/pods/validate", pod("nowhere"))):
        answer = bench.ask(path, thing)
        assert answer["allowed"]
        assert "was not checked" in answer["warnings"][0]


def test_mutations_are_made_before_the_sync(bench: Bench) -> None:
    bench.synced = False
    assert bench.patch("/queues/mutate", {"metadata": {"name": "q"}})
    assert bench.patch("/pods/mutate", pod())


def test_guarantees_above_what_nodes_offer_warn(bench: Bench) -> None:
    """A cluster may grow, so they are allowed; older guarantees are not reported again."""
    bench.ledger.intake.set_node(node("n", cpu="16"))
    bench.ledger.intake.set_queue(queue("other", guarantee={"cpu": "10"}))
    mine = {"guarantee": {"resource": {"cpu": "8"}}, "deserved": {"cpu": "8"}}
    new: Json = {"metadata": {"name": "mine"}, "spec": mine}
    answer = bench.ask("/queues/validate", new)
    says = "queues are guaranteed 18 together; nodes offer 16 now, so each has the same part of its guarantee"
    assert (answer["allowed"], answer["warnings"]) == (True, [f"spec.guarantee.resource[cpu]: {says}"])
    heavier = {**new, "spec": {**mine, "weight": 2}}
    assert "warnings" not in bench.ask("/queues/validate", heavier, "UPDATE", oldObject=new)
    bench.ledger.intake.set_node(node("m", cpu="4"))
    assert "warnings" not in bench.ask("/queues/validate", new)


def test_deserved_amounts_above_what_nodes_offer_warn(bench: Bench) -> None:
    bench.ledger.intake.set_node(node("n", cpu="16"))
    new: Json = {"metadata": {"name": "q"}, "spec": {"deserved": {"cpu": "16", "nvidia.com/gpu": "64"}}}
    answer = bench.ask("/queues/validate", new)
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert warning.startswith("spec.deserved[nvidia.com/gpu]: invalid value 64: nodes offer 0 now")
    heavier = {**new, "spec": {**new["spec"], "weight": 2}}
    assert "warnings" not in bench.ask("/queues/validate", heavier, "UPDATE", oldObject=new)


def test_a_name_by_which_another_queue_means_other_nodes_warns(bench: Bench) -> None:
    """The same labels are no contradiction, in whatever order."""
    bench.ledger.intake.set_queue(queue("other", flavors=[flavor("spot"), flavor("h100")]))
    flavors = [
        {"name": name, "nodeLabels": {"flavor": kind}} for name, kind in (("h100", "a100"), ("spot", "spot"))
    ]
    new = {"metadata": {"name": "mine"}, "spec": {"flavors": flavors}}
    answer = bench.ask("/queues/validate", new)
    says = "spec.flavors[0].nodeLabels: queue other has a flavor h100 for other nodes: these are two flavors"
    assert (answer["allowed"], answer["warnings"]) == (True, [says])
    heavier = {**new, "spec": {"flavors": flavors, "weight": 2}}
    assert "warnings" not in bench.ask("/queues/validate", heavier, "UPDATE", oldObject=new)


@each_of(
    ([{"life": "spot"}, {"life": "spot"}], True),
    ([{}, {"life": "spot"}], True),
    ([{"life": "spot"}, {"life": "spot", "zone": "a"}], True),
    ([{"life": "spot", "zone": "a"}, {"life": "spot"}, {}], False),
)
def test_a_flavor_without_its_own_nodes_warns(
    labels: list[dict[str, str]], warned: bool, *, bench: Bench
) -> None:
    flavors = [{"name": f"f{number}", "nodeLabels": each} for number, each in enumerate(labels)]
    answer = bench.ask("/queues/validate", {"metadata": {"name": "q"}, "spec": {"flavors": flavors}})
    says = "all nodes with these labels are of flavor f0, which comes first: this flavor has no nodes"
    warnings = [f"spec.flavors[1].nodeLabels: {says}"] if warned else []
    assert (answer["allowed"], answer.get("warnings", [])) == (True, warnings)


def test_a_flavor_names_a_resource_flavor_that_exists_or_warns(bench: Bench) -> None:
    named = {"metadata": {"name": "q"}, "spec": {"flavors": [{"name": "f", "resourceFlavor": "h100"}]}}
    says = "spec.flavors[0].resourceFlavor: there is no ResourceFlavor h100 yet: nothing starts on it"
    assert bench.ask("/queues/validate", named)["warnings"] == [says]
    bench.ledger.intake.set_flavor(shared("h100"))
    assert "warnings" not in bench.ask("/queues/validate", named)
    both = {"name": "f", "resourceFlavor": "h100", "nodeLabels": {}}
    assert bench.faults("/queues/validate", {**named, "spec": {"flavors": [both]}}) == ["FlavorNotValid"]


@each_of(
    ({}, []),
    ({"nodeLabels": {"example.com/gpu": "h100", "gpu": ""}}, []),
    ({"nodeLabels": {"Example.com/gpu": "h100"}}, ["FlavorNotValid"]),
    ({"nodeLabels": {"a/b/c": "h100", "": "x"}}, ["FlavorNotValid", "FlavorNotValid"]),
    ({"nodeLabels": {"g" * 64: "h100"}}, ["FlavorNotValid"]),
    ({"nodeTaints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]}, []),
    ({"nodeTaints": [{"key": "a", "effect": "NoSchedule"}] * 2}, ["FlavorNotValid"]),
)
def test_labels_and_taints_of_a_resource_flavor(spec: Json, faults: list[str], *, bench: Bench) -> None:
    assert bench.faults("/resourceflavors/validate", {"metadata": {"name": "f"}, "spec": spec}) == faults


def test_tolerations_of_a_resource_flavor_warn(bench: Bench) -> None:
    flavor = {"metadata": {"name": "f"}, "spec": {"tolerations": [{"operator": "Exists"}]}}
    (warning,) = bench.ask("/resourceflavors/validate", flavor)["warnings"]
    assert warning.startswith("spec.tolerations: not used")


def test_a_resource_flavor_that_a_queue_names_is_not_deleted(bench: Bench) -> None:
    def deleting(name: str) -> list[str]:
        before = {"metadata": {"name": name}}
        return bench.faults("/resourceflavors/validate", None, "DELETE", oldObject=before)

    assert deleting("h100") == []
    bench.ledger.intake.set_queue(queue("q", flavors=[QueueFlavor("f", resource_flavor="h100")]))
    assert deleting("h100") == ["FlavorInUse"]
    assert deleting("a100") == []
