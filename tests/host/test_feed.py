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
from tests.host.conftest import Station
from tests.host.server import PATIENCE, ApiServer

FIRST = {"namespaces", "priorityclasses", "queues", "nodes"}


def fill(station: Station) -> None:
    """Add one object of each kind."""
    annotated = Meta(name="team", annotations={"scheduling.volcano.sh/queue-name": "q"})
    station.api.objects |= {
        "namespaces": [Namespace(annotated)],
        "priorityclasses": [PriorityClass(Meta(name="urgent"), 7)],
        "queues": [queue("q", weight=3)],
        "nodes": [node("a")],
        "podgroups": [group("g", 2, priority_class="urgent")],
        "pods": [pod("g-0", "g", priority=7)],
    }


def view(ledger: Ledger) -> GroupInfo | None:
    return ledger.snapshot().groups.get(key("g"))


def knows(station: Station, name: str) -> bool:
    return station.ledger.pods.get(Uid(f"uid-{name}")) is not None


def fed(station: Station, *more: Pod) -> Station:
    fill(station)
    station.api.objects["pods"] += more
    station.feed.start()
    station.wait_for(lambda: all(knows(station, each.metadata.name) for each in [pod("g-0"), *more]))
    return station


def test_objects_of_all_kinds_reach_the_ledger(station: Station) -> None:
    group_view = view(fed(station).ledger)
    assert group_view is not None
    assert (group_view.min_member, group_view.priority, group_view.queue) == (2, 7, "q")
    assert [each.name for each in group_view.waiting] == ["g-0"]
    assert station.ledger.claims.capacity.has_node("a")
    assert station.ledger.snapshot().queues["q"].record.weight == 3


def test_groups_are_read_after_queues_and_pods_when_everything_else_was(station: Station) -> None:
    fill(station)
    station.api.open.clear()
    station.feed.start()
    station.api.wait_for(lambda: set(station.api.asked) == {*FIRST, "commands"})
    assert not station.feed.synced()
    station.api.open.set()
    station.api.wait_for(lambda: station.api.asked[-1] == "pods")
    assert "podgroups" in station.api.asked
    station.wait_for(lambda: knows(station, "g-0"))


@pytest.mark.parametrize(
    ("plural", "gone", "known"),
    [
        ("pods", pod("g-0", "g"), lambda station: knows(station, "g-0")),
        ("nodes", node("a"), lambda station: station.ledger.claims.capacity.has_node("a")),
    ],
)
def test_deleted_objects_are_dropped(
    station: Station, plural: str, gone: Pod | Node, known: Callable[[Station], bool]
) -> None:
    assert known(fed(station))
    station.api.send(plural, "DELETED", gone)
    station.wait_for(lambda: not known(station))


def test_a_deleted_group_is_dropped_with_its_copy_for_writers(station: Station) -> None:
    version = fed(station, pod("g-1", "g")).ledger.version
    copy = station.objects.podgroups.get(GroupKey("team/g"))
    assert copy is not None
    assert copy.metadata.name == "g"
    station.api.send("podgroups", "DELETED", group("g", 2))
    station.wait_for(lambda: station.ledger.version > version)
    group_view = view(station.ledger)
    assert group_view is not None
    assert not group_view.exists
    assert station.objects.podgroups.get(GroupKey("team/g")) is None


def test_a_deleted_queue_is_dropped(station: Station) -> None:
    version = fed(station).ledger.version
    station.api.send("queues", "DELETED", queue("q"))
    station.wait_for(lambda: station.ledger.version > version)
    assert not station.ledger.snapshot().queues["q"].exists


def test_a_cluster_without_the_kind_command_is_ready(station: Station) -> None:
    station.api.served = {}
    wait_for(fed(station).feed.synced)
    assert "commands" not in station.api.asked
    assert {check() for check in station.feed.checks().values()} == {None}


def test_commands_reach_the_ledger(station: Station) -> None:
    fed(station)
    station.api.send("commands", "ADDED", command("c", "CloseQueue", "q"))
    commands = station.feed.reflectors[-1]
    deadline = time.monotonic() + PATIENCE
    while not commands.inventory and time.monotonic() < deadline:
        time.sleep(0.01)
    station.bus_commands.on_decisions(station.ledger.decisions)
    assert station.writes == 1


def test_disruption_budgets_are_added_and_dropped(station: Station) -> None:
    station.api.served["policy/v1"] = ["poddisruptionbudgets"]
    station.api.objects["poddisruptionbudgets"] = [budget("p", 1, app="web")]
    snapshot = fed(station).ledger.snapshot
    assert [each.allowed for each in snapshot().disruption_budgets["team"]] == [1]
    station.api.send("poddisruptionbudgets", "MODIFIED", budget("p", 2, app="web"))
    station.wait_for(lambda: [each.allowed for each in snapshot().disruption_budgets["team"]] == [2])
    station.api.send("poddisruptionbudgets", "DELETED", budget("p", 2, app="web"))
    station.wait_for(lambda: not snapshot().disruption_budgets)


def test_an_unread_kind_makes_the_process_unready(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = station.feed.checks()
    assert {name: check() for name, check in checks.items()} == {
        "credentials": None,
        "writes": None,
        **{f"{plural}-synced": "not read yet" for plural in {*FIRST, "podgroups", "pods"}},
    }
    fed(station).api.send("pods", "ADDED", pod("last"))
    station.wait_for(lambda: knows(station, "last"))
    assert station.feed.synced()
    assert {check() for check in checks.values()} == {None}
    monkeypatch.setattr("extender.host.feed._OLDEST", -1.0)
    assert checks["pods-synced"]() == "watch silent for 0 s"


def test_credentials_refused_for_a_minute_make_the_process_unready(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = station.feed.checks()["credentials"]
    station.connection.endpoint.renew(station.connection.endpoint.current_header)
    assert check() is None
    monkeypatch.setattr("extender.host.feed._REFUSED", 0.0)
    assert check() == "refused by the API server for 0 s"
    station.connection.endpoint.record_accepted()
    assert check() is None


def test_an_api_server_that_hangs_delays_the_end_once_and_not_for_each_watch(station: Station) -> None:
    station.api.open.clear()
    station.feed.start()
    station.api.wait_for(lambda: set(station.api.asked) == {*FIRST, "commands"})
    started = time.monotonic()
    station.feed.stop()
    assert time.monotonic() - started < len(FIRST) / 2
    station.api.open.set()


# ---- kinds that a cluster may lack


def test_owners_of_pods_are_read_before_the_pods(station: Station) -> None:
    station.api.served["apps/v1"] = ["replicasets"]
    station.api.objects["replicasets"] = [owner("web", "3")]
    fed(station)
    known = station.ledger.registry.owner_of(group_of_owner("team", "uid-web"))
    assert known is not None
    assert known.gang.volcano == 3
    assert station.api.asked.index("replicasets") < station.api.asked.index("pods")


def test_authors_are_added_and_dropped_with_the_owners_of_owners(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApiClient, "has_right", lambda *_: True)
    station.api.served["apps/v1"] = ["deployments", "replicasets"]
    web, above = owner("web"), owner("site", annotations={AUTHOR: "Deployment/ann"})
    controller = [OwnerReference("apps/v1", "Deployment", "site", "uid-site", True)]
    station.api.objects["replicasets"] = [
        replace(web, metadata=replace(web.metadata, owner_references=controller))
    ]
    station.api.objects["deployments"] = [above]
    fed(station)

    def author() -> str:
        return station.ledger.registry.ancestors.author([Owner(group_of_owner("team", "uid-web"))])

    assert author() == "ann"
    assert station.ledger.registry.ancestors.are_read("apps/v1/Deployment")
    assert not station.ledger.registry.ancestors.are_read("apps/v1/StatefulSet")
    station.api.send("deployments", "DELETED", above)
    wait_for(lambda: author() == "")


def test_groups_of_other_kinds_are_added_and_dropped(station: Station) -> None:
    station.api.served["scheduling.x-k8s.io/v1alpha1"] = ["podgroups"]
    fed(station)
    assert "replicasets" not in station.api.asked
    assert station.api.asked.count("podgroups") == 2


def test_a_forbidden_kind_delays_readiness_for_a_limited_time(api: ApiServer, station: Station) -> None:
    instants = iter([0.0, 5.0, 11.0])
    api.served = {"apps/v1": ["replicasets"]}
    api.open.clear()
    watch = Reflector(station.connection, REPLICA_SETS, Workload, Ignored())
    watches = OptionalWatches(ApiClient(station.connection), clock=lambda: next(instants))
    watches.add(watch)
    watches.start()
    assert [watches.has_settled for _ in range(2)] == [False, True]
    watches.halt()
    api.open.set()
    watch.stop()


def test_one_of_two_watches_of_a_kind_is_enough(station: Station) -> None:
    station.api.served = {"apps/v1": ["replicasets"]}
    first, second = (Reflector(station.connection, REPLICA_SETS, Workload, Ignored()) for _ in range(2))
    watches = OptionalWatches(ApiClient(station.connection))
    watches.add(first)
    watches.add(second)
    watches.start_served()
    assert (watches.started, watches.missing) == ([first], [])
    first.stop()


def test_a_watch_without_rights_is_replaced_by_another_until_they_are_granted(
    station: Station,
) -> None:
    granted: list[str] = []

    class Cluster(ApiClient):
        def has_right(self, verb: str, resource: Resource, timeout: float = 10) -> bool:
            return verb in granted

    station.api.served = {"apps/v1": ["replicasets"]}
    first, second = (Reflector(station.connection, REPLICA_SETS, Workload, Ignored()) for _ in range(2))
    watches = OptionalWatches(Cluster(station.connection))
    watches.add(first, "patch")
    watches.add(second)
    watches.start_served()
    assert (watches.started, watches.missing) == ([second], [first])
    granted.append("patch")
    watches.start_served()
    assert (watches.started, watches.missing) == ([second, first], [])
    for each in (first, second):
        each.stop()


def test_a_kind_that_is_served_later_is_found(station: Station) -> None:
    watch = Reflector(station.connection, REPLICA_SETS, Workload, Ignored())
    watches = OptionalWatches(ApiClient(station.connection))
    watches.add(watch)
    watches.start_served()
    assert watches.started == []
    station.api.served = {"apps/v1": ["replicasets"]}
    watches.start_served()
    assert watches.started == [watch]
    watch.stop()


class Ignored:
    def upsert(self, obj: Workload) -> None:
        pass

    def remove(self, gone: Removed) -> None:
        pass
