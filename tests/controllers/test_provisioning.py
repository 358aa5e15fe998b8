"""ProvisioningRequests: one for a group that has lacked capacity for a while, and none afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api.objects.base import Condition, Meta, OwnerReference
from extender.api.objects.cluster import ProvisioningRequest, ProvisioningRequestStatus
from extender.api.objects.queues import Provisioning
from extender.controllers.objects import ObjectStore, QueueCopy
from extender.controllers.provisioning import (
    MIN_NEED_SECONDS,
    ProvisioningController,
    ProvisioningQueues,
    ProvisioningRequests,
)
from extender.domain.snapshot.decisions import ConditionPolicy
from extender.kube.errors import Conflict, NotFound, Unreachable
from extender.kube.reflector import Removed
from tests.controllers.bench import RETRY_SECONDS, Bench
from tests.domain import builders
from tests.domain.builders import NAMESPACE, foreign_pod, group, node, pod
from tests.domain.world import gang, key
from tests.rows import each_of

CLASS = Provisioning("some.example.com", {"ValidUntilSeconds": "60"})
Json = dict[str, Any]


class ProvisioningBench(Bench):
    """Bench whose watch shows each write while `served` is true."""

    def __init__(self, *objects: Any, policy: ConditionPolicy | None = None, served: bool = True) -> None:
        self.queues: ObjectStore[str, QueueCopy] = ObjectStore()
        super().__init__(*objects)
        self.served = served
        self.policy = policy or ConditionPolicy()
        self.restart()

    def restart(self) -> None:
        self.requests = ProvisioningRequests()
        self.asking = ProvisioningQueues(self.queues, lambda: self.served)
        self.controller = ProvisioningController(self.means(), self.asking, self.requests, self.policy)
        for name in self.ledger.queues.names():
            self.queues.put(name, self._copies[name])

    @property
    def _copies(self) -> dict[str, QueueCopy]:
        return {name: copy for name in self.ledger.queues.names() if (copy := self.queues.get(name))}

    def put_queue(
        self, name: str, provisioning: Provisioning | None = CLASS, **options: Any
    ) -> "ProvisioningBench":
        new_queue = builders.queue(name, **options)
        new_queue = replace(new_queue, spec=replace(new_queue.spec, provisioning=provisioning))
        self.add(new_queue)
        self.queues.put(name, QueueCopy(new_queue, 0))
        return self

    def look(self, after: float = 0.0) -> list[tuple[str, str]]:
        """Return the requests of one look: verbs and names."""
        self.api.calls = []
        self.advance(after).settle()
        self.controller.on_decisions(self.decisions)
        self.flush()
        calls = [call[:2] for call in self.api.calls if call[0] != "whole pod"]
        for verb, name, *more in list(self.api.calls):
            if verb == "request nodes":
                self.show(more[0])
            elif verb == "withdraw request":
                self.requests.remove(Removed(NAMESPACE, name, more[0]))
        return [(verb, name) for verb, name in calls]

    def lasting(self) -> list[tuple[str, str]]:
        """Return the writes once the present state has lasted."""
        return [*self.look(), *self.look(MIN_NEED_SECONDS)]

    def show(self, body: Json, *conditions: Condition) -> None:
        """Show a request in the watch."""
        meta = body["metadata"]
        (owner,) = meta["ownerReferences"]
        of = OwnerReference(owner["apiVersion"], owner["kind"], owner["name"], owner["uid"], True)
        shown = Meta(meta["name"], NAMESPACE, f"uid-{meta['name']}", owner_references=[of])
        self.requests.upsert(ProvisioningRequest(shown, ProvisioningRequestStatus(list(conditions))))

    def asked(self) -> Json:
        """Return the last request."""
        body: Json = self.api.done("request nodes")[-1][1]
        return body


@contextmanager
def writing_bench(*objects: Any, **options: Any) -> Iterator[ProvisioningBench]:
    bench = ProvisioningBench(node("a", cpu="4"), foreign_pod("s", on="a", cpu="4"), **options)
    with bench.writing(), capture_logs():
        bench.put_queue("q").add(*objects)
        yield bench


def waiting(name: str = "g", size: int = 2) -> list[Any]:
    return gang(name, size, queue="q")


# ---- what is asked for


def test_a_group_that_lacks_capacity_for_a_while_makes_one_request_for_nodes() -> None:
    with writing_bench(waiting()) as bench:
        assert bench.look() == []
        assert bench.look(MIN_NEED_SECONDS - 0.1) == []
        ((created, name), (template, of)) = bench.look(0.1)
        assert (created, template, of) == ("request nodes", "create podtemplates", f"{name}-0")
        assert name.startswith("g-")
        assert bench.look(600.0) == []


def test_a_request_has_the_pods_and_the_class() -> None:
    with writing_bench(waiting()) as bench:
        bench.lasting()
        body, (template,) = bench.asked(), bench.api.done("create podtemplates")
        assert body["apiVersion"] == "autoscaling.x-k8s.io/v1"
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("PodGroup", "g", "uid-g")
        assert body["spec"] == {
            "provisioningClassName": "some.example.com",
            "podSets": [{"podTemplateRef": {"name": template[0]}, "count": 2}],
            "parameters": {"ValidUntilSeconds": "60"},
        }
        (owner,) = template[1]["metadata"]["ownerReferences"]
        assert owner["uid"] == f"uid-{body['metadata']['name']}"
        assert template[1]["template"] == {"metadata": {"labels": {"app": "g-0"}}, "spec": {"containers": []}}


def test_members_that_differ_have_their_own_templates() -> None:
    pods = [pod("g-0", "g", cpu="2"), *(pod(f"g-{number}", "g") for number in (1, 2))]
    with writing_bench(group("g", 3, "q"), pods) as bench:
        bench.lasting()
        assert [each["count"] for each in bench.asked()["spec"]["podSets"]] == [1, 2]
        assert [call[0] for call in bench.api.done("whole pod")] == ["g-0", "g-1"]


def test_the_same_group_has_the_same_name_in_every_process() -> None:
    with writing_bench(waiting()) as bench:
        bench.lasting()
        first = bench.asked()
        bench.restart()
        bench.show(first)
        again = bench.lasting()
        assert again[0] == ("request nodes", first["metadata"]["name"])  # which is there, for its templates
        assert ("withdraw request", first["metadata"]["name"]) not in again
        assert bench.look(600.0) == []


# ---- who asks


@each_of(False, True)
def test_members_larger_than_all_nodes_are_requested_only_where_larger_nodes_may_appear(
    never_fits: bool,
) -> None:
    policy = ConditionPolicy(shows_never_fits=never_fits, shows_waiting_for_capacity=False)
    with writing_bench(gang("g", 2, queue="q", cpu="64"), policy=policy) as bench:
        assert bool(bench.lasting()) is never_fits


@each_of(
    (waiting(), {"capability": {"cpu": "1"}}),  # it waits for its queue
    (waiting(), {"provisioning": None}),
    (  # too many kinds of members
        [group("g", 33, "q"), *(pod(f"g-{number}", "g", cpu=f"{100 + number}m") for number in range(33))],
        {},
    ),
)
def test_groups_that_request_no_nodes(objects: list[Any], options: dict[str, Any]) -> None:
    with writing_bench(objects) as bench:
        bench.put_queue("q", **options)
        assert bench.lasting() == []


def test_requests_are_written_once_the_cluster_serves_their_kind() -> None:
    with writing_bench(waiting(), served=False) as bench:
        assert bench.lasting() == []
        bench.served = True
        assert [verb for verb, _ in bench.lasting()] == ["request nodes", "create podtemplates"]


def test_requests_stay_until_it_is_known_whether_they_are_allowed() -> None:
    """Keep the requests, which the watch shows one by one after a restart."""
    with writing_bench(waiting()) as bench:
        bench.lasting()
        requests = bench.requests.requests_of(key("g"))
        bench.served = False
        bench.restart()
        for each in requests:
            bench.requests.upsert(each)
        assert bench.lasting() == []
        bench.served = True
        assert "withdraw request" not in [verb for verb, _ in bench.lasting()]


def test_a_queue_with_new_provisioning_requests_nodes_for_groups_that_wait_already() -> None:
    with writing_bench(waiting()) as bench:
        bench.put_queue("q", None)
        assert bench.lasting() == []
        bench.put_queue("q")
        assert [verb for verb, _ in bench.lasting()] == ["request nodes", "create podtemplates"]
        bench.put_queue("q", None)
        assert [verb for verb, _ in bench.look()] == ["withdraw request"]


def test_few_requests_are_made_at_once() -> None:
    groups = [each for number in range(30) for each in waiting(f"g{number}", 1)]
    with writing_bench(groups) as bench:
        requested = [verb for verb, _ in bench.lasting()].count("request nodes")
        assert 0 < requested <= ProvisioningController.burst
        rest = [verb for _ in range(10) for verb, _ in bench.look(1.0)]
        assert requested + rest.count("request nodes") == 30


# ---- until when


def test_a_group_that_starts_withdraws_its_request() -> None:
    with writing_bench(waiting()) as bench:
        bench.lasting()
        name = bench.asked()["metadata"]["name"]
        bench.add(node("b", cpu="4"))
        assert bench.look() == [("withdraw request", name)]
        assert bench.look(600.0) == []


def test_a_group_that_is_deleted_or_waits_for_another_reason_withdraws_its_request() -> None:
    with writing_bench(waiting(), waiting("h")) as bench:
        bench.lasting()
        bench.ledger.intake.drop_group(key("g"))
        bench.delete("g-0", "g-1")
        assert [verb for verb, _ in bench.look()] == ["withdraw request"]
        bench.put_queue("q", capability={"cpu": "1"})
        assert [verb for verb, _ in bench.look()] == ["withdraw request"]


def test_a_group_that_needs_other_pods_makes_a_new_request() -> None:
    with writing_bench(waiting()) as bench:
        bench.lasting()
        before = bench.asked()["metadata"]["name"]
        bench.add(pod("g-2", "g"))
        assert bench.look() == [("withdraw request", before)]
        assert [verb for verb, _ in bench.look(MIN_NEED_SECONDS)] == ["request nodes", "create podtemplates"]
        assert bench.asked()["metadata"]["name"] != before


@each_of("BookingExpired", "CapacityRevoked")
def test_nodes_that_were_reserved_and_are_gone_are_requested_again(kind: str) -> None:
    with writing_bench(waiting()) as bench:
        bench.lasting()
        body = bench.asked()
        bench.show(body, Condition("Provisioned", "True"), Condition(kind, "True"))
        assert bench.look() == [("withdraw request", body["metadata"]["name"])]
        assert bench.look()[0] == ("request nodes", body["metadata"]["name"])


def test_a_failed_request_stays_with_its_reason_until_it_is_deleted() -> None:
    with writing_bench(waiting()) as bench:
        bench.lasting()
        body = bench.asked()
        name = body["metadata"]["name"]
        bench.show(body, Condition("Failed", "True", "OutOfQuota", "no quota is left" * 99))
        assert bench.requests.failure(key("g")).startswith(f"ProvisioningRequest {name} failed: no quota")
        assert len(bench.requests.failure(key("g"))) < 400
        assert bench.look(600.0) == []
        bench.requests.remove(Removed(NAMESPACE, name, f"uid-{name}"))
        assert bench.requests.failure(key("g")) == ""
        assert bench.look()[0] == ("request nodes", name)


# ---- faults


def test_a_write_that_fails_is_made_again() -> None:
    with writing_bench(waiting()) as bench:
        bench.api.fail("create podtemplates", Unreachable("x"))
        assert bench.lasting()[-1][0] == "create podtemplates"
        assert [verb for verb, _ in bench.look(RETRY_SECONDS)] == ["request nodes", "create podtemplates"]
        assert bench.look(600.0) == []


def test_templates_of_an_earlier_request_are_waited_for() -> None:
    with writing_bench(waiting()) as bench:
        bench.api.fail("create podtemplates", Conflict(409, "AlreadyExists"))
        bench.lasting()
        assert [verb for verb, _ in bench.look(2.0)] == ["request nodes", "create podtemplates"]
        assert bench.look(600.0) == []


def test_a_member_deleted_meanwhile_ends_only_this_attempt() -> None:
    with writing_bench(waiting()) as bench:
        bench.api.fail("whole pod", NotFound(404, "NotFound"))
        assert bench.lasting() == []
        bench.delete("g-0")
        bench.add(pod("g-0", "g", uid="another"))
        assert [verb for verb, _ in bench.lasting()] == ["request nodes", "create podtemplates"]


def test_requests_of_other_programs_are_ignored() -> None:
    with writing_bench(waiting()) as bench:
        bench.requests.upsert(ProvisioningRequest(Meta("theirs", NAMESPACE, "uid-theirs")))
        assert bench.requests.requests_of(key("g")) == []
        bench.requests.remove(Removed(NAMESPACE, "theirs", "uid-theirs"))
