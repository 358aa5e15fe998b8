"""The feed: what the API server has and sends arrives in the ledger, pods last."""

import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from extender.api.keys import AUTHOR
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.cluster import Namespace, Node, PriorityClass, Workload
from extender.api.objects.pods import Pod
from extender.domain.ledger.jobs import Owner
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import GroupKey, Uid, group_of_owner
from extender.domain.snapshot.group_info import GroupInfo
from extender.host.feed import OptionalWatches
from extender.kube.calls import ApiClient
from extender.kube.reflector import Reflector, Removed
from extender.kube.resources import REPLICA_SETS, Resource
from tests.controllers.queue_bench import command
from tests.domain.builders import budget, group, node, owner, pod, queue
from tests.domain.world import key
from tests.e2e.harness.waiting import wait_for
from tests.host.conftest import FeedBench
from tests.host.server import PATIENCE, ApiServer

FIRST = {"namespaces", "priorityclasses", "queues", "nodes"}


def fill(bench: FeedBench) -> None:
    """Add one object of each kind."""
    annotated = Meta(name="team", annotations={"scheduling.volcano.sh/queue-name": "q"})
    bench.api.objects |= {
        "namespaces": [Namespace(annotated)],
        "priorityclasses": [PriorityClass(Meta(name="urgent"), 7)],
        "queues": [queue("q", weight=3)],
        "nodes": [node("a")],
        "podgroups": [group("g", 2, priority_class="urgent")],
        "pods": [pod("g-0", "g", priority=7)],
    }


def view(ledger: Ledger) -> GroupInfo | None:
    return ledger.snapshot().groups.get(key("g"))


def knows(bench: FeedBench, name: str) -> bool:
    return bench.ledger.pods.get(Uid(f"uid-{name}")) is not None


def fed(bench: FeedBench, *more: Pod) -> FeedBench:
    fill(bench)
    bench.api.objects["pods"] += more
    bench.feed.start()
    bench.wait_for(lambda: all(knows(bench, each.metadata.name) for each in [pod("g-0"), *more]))
    return bench


def test_objects_of_all_kinds_reach_the_ledger(bench: FeedBench) -> None:
    group_view = view(fed(bench).ledger)
    assert group_view is not None
    assert (group_view.min_member, group_view.priority, group_view.queue) == (2, 7, "q")
    assert [each.name for each in group_view.waiting_pods] == ["g-0"]
    assert bench.ledger.claims.capacity.has_node("a")
    assert bench.ledger.snapshot().queues["q"].record.weight == 3


def test_groups_are_read_after_queues_and_pods_when_everything_else_was(bench: FeedBench) -> None:
    fill(bench)
    bench.api.open.clear()
    bench.feed.start()
    bench.api.wait_for(lambda: set(bench.api.listed) == {*FIRST, "commands"})
    assert not bench.feed.is_synced()
    bench.api.open.set()
    bench.api.wait_for(lambda: bench.api.listed[-1] == "pods")
    assert "podgroups" in bench.api.listed
    bench.wait_for(lambda: knows(bench, "g-0"))


@pytest.mark.parametrize(
    ("plural", "gone", "known"),
    [
        ("pods", pod("g-0", "g"), lambda bench: knows(bench, "g-0")),
        ("nodes", node("a"), lambda bench: bench.ledger.claims.capacity.has_node("a")),
    ],
)
def test_deleted_objects_are_dropped(
    bench: FeedBench, plural: str, gone: Pod | Node, known: Callable[[FeedBench], bool]
) -> None:
    assert known(fed(bench))
    bench.api.send(plural, "DELETED", gone)
    bench.wait_for(lambda: not known(bench))


def test_a_deleted_group_is_dropped_with_its_copy_for_writers(bench: FeedBench) -> None:
    version = fed(bench, pod("g-1", "g")).ledger.version
    copy = bench.objects.podgroups.get(GroupKey("team/g"))
    assert copy is not None
    assert copy.metadata.name == "g"
    bench.api.send("podgroups", "DELETED", group("g", 2))
    bench.wait_for(lambda: bench.ledger.version > version)
    group_view = view(bench.ledger)
    assert group_view is not None
    assert not group_view.exists
    assert bench.objects.podgroups.get(GroupKey("team/g")) is None


def test_a_deleted_queue_is_dropped(bench: FeedBench) -> None:
    version = fed(bench).ledger.version
    bench.api.send("queues", "DELETED", queue("q"))
    bench.wait_for(lambda: bench.ledger.version > version)
    assert not bench.ledger.snapshot().queues["q"].exists


def test_a_cluster_without_the_kind_command_is_ready(bench: FeedBench) -> None:
    bench.api.served = {}
    wait_for(fed(bench).feed.is_synced)
    assert "commands" not in bench.api.listed
    assert {check() for check in bench.feed.checks().values()} == {None}


def test_commands_reach_the_ledger(bench: FeedBench) -> None:
    fed(bench)
    bench.api.send("commands", "ADDED", command("c", "CloseQueue", "q"))
    commands = bench.feed.reflectors[-1]
    deadline = time.monotonic() + PATIENCE
    while not commands.inventory and time.monotonic() < deadline:
        time.sleep(0.01)
    bench.bus_commands.on_decisions(bench.ledger.decisions)
    assert bench.writes == 1


def test_disruption_budgets_are_added_and_dropped(bench: FeedBench) -> None:
    bench.api.served["policy/v1"] = ["poddisruptionbudgets"]
    bench.api.objects["poddisruptionbudgets"] = [budget("p", 1, app="web")]
    snapshot = fed(bench).ledger.snapshot
    assert [each.allowed_evictions for each in snapshot().disruption_budgets["team"]] == [1]
    bench.api.send("poddisruptionbudgets", "MODIFIED", budget("p", 2, app="web"))
    bench.wait_for(lambda: [each.allowed_evictions for each in snapshot().disruption_budgets["team"]] == [2])
    bench.api.send("poddisruptionbudgets", "DELETED", budget("p", 2, app="web"))
    bench.wait_for(lambda: not snapshot().disruption_budgets)


def test_an_unread_kind_makes_the_process_unready(bench: FeedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = bench.feed.checks()
    assert {name: check() for name, check in checks.items()} == {
        "credentials": None,
        "writes": None,
        **{f"{plural}-synced": "not read yet" for plural in {*FIRST, "podgroups", "pods"}},
    }
    fed(bench).api.send("pods", "ADDED", pod("last"))
    bench.wait_for(lambda: knows(bench, "last"))
    assert bench.feed.is_synced()
    assert {check() for check in checks.values()} == {None}
    monkeypatch.setattr("extender.host.feed._MAX_SILENT_SECONDS", -1.0)
    assert checks["pods-synced"]() == "watch silent for 0 s"


def test_credentials_refused_for_a_minute_make_the_process_unready(
    bench: FeedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = bench.feed.checks()["credentials"]
    bench.connection.endpoint.renew(bench.connection.endpoint.current_header)
    assert check() is None
    monkeypatch.setattr("extender.host.feed._MAX_REFUSED_SECONDS", 0.0)
    assert check() == "refused by the API server for 0 s"
    bench.connection.endpoint.record_accepted()
    assert check() is None


def test_an_api_server_that_hangs_delays_the_end_once_and_not_for_each_watch(bench: FeedBench) -> None:
    bench.api.open.clear()
    bench.feed.start()
    bench.api.wait_for(lambda: set(bench.api.listed) == {*FIRST, "commands"})
    started = time.monotonic()
    bench.feed.stop()
    assert time.monotonic() - started < len(FIRST) / 2
    bench.api.open.set()


# ---- kinds that a cluster may lack


def test_owners_of_pods_are_read_before_the_pods(bench: FeedBench) -> None:
    bench.api.served["apps/v1"] = ["replicasets"]
    bench.api.objects["replicasets"] = [owner("web", "3")]
    fed(bench)
    known = bench.ledger.registry.owner_of(group_of_owner("team", "uid-web"))
    assert known is not None
    assert known.gang.volcano == 3
    assert bench.api.listed.index("replicasets") < bench.api.listed.index("pods")


def test_authors_are_added_and_dropped_with_the_owners_of_owners(
    bench: FeedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApiClient, "has_right", lambda *_: True)
    bench.api.served["apps/v1"] = ["deployments", "replicasets"]
    web, above = owner("web"), owner("site", annotations={AUTHOR: "Deployment/ann"})
    controller = [OwnerReference("apps/v1", "Deployment", "site", "uid-site", True)]
    bench.api.objects["replicasets"] = [
        replace(web, metadata=replace(web.metadata, owner_references=controller))
    ]
    bench.api.objects["deployments"] = [above]
    fed(bench)

    def author() -> str:
        return bench.ledger.registry.ancestors.author([Owner(group_of_owner("team", "uid-web"))])

    assert author() == "ann"
    assert bench.ledger.registry.ancestors.are_read("apps/v1/Deployment")
    assert not bench.ledger.registry.ancestors.are_read("apps/v1/StatefulSet")
    bench.api.send("deployments", "DELETED", above)
    wait_for(lambda: author() == "")


def test_groups_of_other_kinds_are_added_and_dropped(bench: FeedBench) -> None:
    bench.api.served["scheduling.x-k8s.io/v1alpha1"] = ["podgroups"]
    fed(bench)
    assert "replicasets" not in bench.api.listed
    assert bench.api.listed.count("podgroups") == 2


def test_a_forbidden_kind_delays_readiness_for_a_limited_time(api: ApiServer, bench: FeedBench) -> None:
    instants = iter([0.0, 5.0, 11.0])
    api.served = {"apps/v1": ["replicasets"]}
    api.open.clear()
    watch = Reflector(bench.connection, REPLICA_SETS, Workload, Ignored())
    watches = OptionalWatches(ApiClient(bench.connection), clock=lambda: next(instants))
    watches.add(watch)
    watches.start()
    assert [watches.has_settled for _ in range(2)] == [False, True]
    watches.halt()
    api.open.set()
    watch.stop()


def test_one_of_two_watches_of_a_kind_is_enough(bench: FeedBench) -> None:
    bench.api.served = {"apps/v1": ["replicasets"]}
    first, second = (Reflector(bench.connection, REPLICA_SETS, Workload, Ignored()) for _ in range(2))
    watches = OptionalWatches(ApiClient(bench.connection))
    watches.add(first)
    watches.add(second)
    watches.start_served()
    assert (watches.started_watches, watches.missing_watches) == ([first], [])
    first.stop()


def test_a_watch_without_rights_is_replaced_by_another_until_they_are_granted(
    bench: FeedBench,
) -> None:
    granted: list[str] = []

    class Cluster(ApiClient):
        def has_right(self, verb: str, resource: Resource, timeout: float = 10) -> bool:
            return verb in granted

    bench.api.served = {"apps/v1": ["replicasets"]}
    first, second = (Reflector(bench.connection, REPLICA_SETS, Workload, Ignored()) for _ in range(2))
    watches = OptionalWatches(Cluster(bench.connection))
    watches.add(first, "patch")
    watches.add(second)
    watches.start_served()
    assert (watches.started_watches, watches.missing_watches) == ([second], [first])
    granted.append("patch")
    watches.start_served()
    assert (watches.started_watches, watches.missing_watches) == ([second, first], [])
    for each in (first, second):
        each.stop()


def test_a_kind_that_is_served_later_is_found(bench: FeedBench) -> None:
    watch = Reflector(bench.connection, REPLICA_SETS, Workload, Ignored())
    watches = OptionalWatches(ApiClient(bench.connection))
    watches.add(watch)
    watches.start_served()
    assert watches.started_watches == []
    bench.api.served = {"apps/v1": ["replicasets"]}
    watches.start_served()
    assert watches.started_watches == [watch]
    watch.stop()


class Ignored:
    def upsert(self, obj: Workload) -> None:
        pass

    def remove(self, gone: Removed) -> None:
        pass
