"""PodGroups for pods that name none: created once, updated with the owner, deleted with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace, Node, Workload
from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup
from extender.controllers.auto_podgroups import AutoPodGroupsController
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey, Uid
from extender.domain.snapshot.auto_podgroups import PlainPods
from extender.domain.snapshot.snapshot import Limits
from extender.kube.errors import Conflict, Forbidden
from tests.controllers.bench import Bench
from tests.domain.builders import NAMESPACE, group, node, owner, pod, queue
from tests.domain.world import LIMITS, key
from tests.rows import each_of

GROUP = "podgroup-uid-web"


class AutoPodGroupBench(Bench):
    """Bench that shows the controller the events of the watches."""

    def __init__(
        self, *objects: Any, plain: PlainPods = PlainPods.ALWAYS, limits: Limits | None = None
    ) -> None:
        super().__init__(auto_groups=True, limits=limits)
        self.grouper = AutoPodGroupsController(self.means(), plain)
        self.show(*objects)

    def show(self, *objects: Any) -> "AutoPodGroupBench":
        self.add(*objects)
        for each in objects:
            if isinstance(each, Pod):
                self.grouper.see_pod(each)
            if isinstance(each, PodGroup):
                self.grouper.notice(key(each.metadata.name))
            if isinstance(each, Workload):
                self.grouper.notice(GroupKey(f"{NAMESPACE}/podgroup-{each.metadata.uid}"))
        return self

    def go(self, name: str) -> None:
        """End a pod."""
        record = self.ledger.pods.get(Uid(f"uid-{name}"))
        assert record is not None
        self.delete(name)
        self.grouper.forget_pod(record)

    def lose(self, name: str) -> None:
        """Delete a PodGroup."""
        self.ledger.intake.drop_group(key(name))
        self.grouper.notice(key(name), is_removed=True)

    def name_queue(self, queue: str) -> None:
        """Set the queue that the namespace names for its pods."""
        named = Namespace(Meta(name=NAMESPACE, annotations={keys.QUEUE: queue}))
        self.ledger.intake.set_namespace(named)

    def look(self) -> list[tuple[str, str]]:
        """Return the requests of one reconciliation: verbs and names."""
        self.api.calls = []
        self.grouper.on_decisions(self.settle().decisions)
        self.flush()
        return [(call[0], call[1]) for call in self.api.calls]


@contextmanager
def writing_bench(*objects: Any, **settings: Any) -> Iterator[AutoPodGroupBench]:
    bench = AutoPodGroupBench(*objects, **settings)
    with bench.writing(), capture_logs():
        yield bench


def web(name: str, named: bool = False, **more: Any) -> Pod:
    return pod(name, GROUP if named else "", owner="web", **more)


def test_a_podgroup_is_created_once_for_all_pods_of_an_owner_and_named_on_each() -> None:
    with writing_bench(node("n"), owner("web"), web("a"), web("b")) as bench:
        assert bench.look() == [("create group", GROUP)]
        assert bench.look() == []
        bench.show(group(GROUP, 1))
        assert sorted(bench.look()) == [("name group", "a"), ("name group", "b")]
        assert bench.look() == []
        bench.show(web("a", named=True), web("b", named=True), web("c"))
        assert bench.look() == [("name group", "c")]


def test_an_automatic_podgroup_goes_to_the_queue_of_its_pods() -> None:
    with writing_bench(queue("q"), web("a", queue="q")) as bench:
        bench.look()
        ((_, created),) = bench.api.done("create group")
        assert created["spec"]["queue"] == "q"


def test_an_automatic_podgroup_names_the_author_of_its_owner() -> None:
    with writing_bench(node("n"), owner("web"), web("a")) as bench:
        recorded = Meta(namespace=NAMESPACE, uid="uid-web", annotations={keys.AUTHOR: "ReplicaSet/ann"})
        bench.ledger.intake.set_ancestor("ReplicaSet", recorded)
        bench.look()
        ((_, created),) = bench.api.done("create group")
        assert created["metadata"]["annotations"][keys.SUBMITTER] == "ann"


def test_pods_of_others_and_pods_that_name_a_group_get_none() -> None:
    with writing_bench(web("a", scheduler="other"), pod("b", "g"), web("c", phase="Succeeded")) as bench:
        assert bench.look() == []


def test_a_write_that_the_fence_drops_is_made_later() -> None:
    with writing_bench(web("a")) as bench:
        bench.fence.append(False)
        assert bench.look() == []
        bench.advance(2)
        assert bench.look() == [("create group", GROUP)]


def test_an_existing_podgroup_counts_as_created() -> None:
    with writing_bench(web("a")) as bench:
        bench.api.fail("create group", Conflict(409, "AlreadyExists"))
        bench.look()
        bench.advance(60)
        assert bench.look() == []


def test_a_refused_creation_is_tried_again() -> None:
    with writing_bench(web("a")) as bench:
        bench.api.fail("create group", Forbidden(403, "Forbidden", "queue q is Closed"))
        bench.look()
        bench.advance(0.9)
        assert bench.look() == []
        bench.advance(0.2)
        assert bench.look() == [("create group", GROUP)]


def test_a_lost_podgroup_is_created_again_after_a_while() -> None:
    with writing_bench(node("n"), web("a", named=True), group(GROUP, 1)) as bench:
        bench.api.pods["a"] = web("a", named=True)
        bench.look()
        bench.lose(GROUP)
        assert bench.look() == []
        bench.advance(5)
        assert bench.look() == [("pod", "a"), ("create group", GROUP)]


def test_a_lost_podgroup_without_pods_is_not_created_again() -> None:
    with writing_bench(node("n"), web("a", named=True), group(GROUP, 1)) as bench:
        bench.go("a")
        bench.lose(GROUP)
        bench.advance(60)
        assert bench.look() == []


# ---- while its queue is not open


@contextmanager
def closed(*pods: Pod) -> Iterator[AutoPodGroupBench]:
    """Yield a bench with pods in a closed queue."""
    with writing_bench(node("n"), queue("q", spec_state="Closed"), *pods) as bench:
        assert bench.look() == []
        bench.advance(120)
        assert bench.look() == []
        yield bench


def test_no_group_is_made_until_the_queue_opens() -> None:
    with closed(web("a", queue="q")) as bench:
        bench.show(queue("q", spec_state="Open"))
        assert bench.look() == [("create group", GROUP)]


def test_no_podgroup_is_created_for_a_missing_queue() -> None:
    with writing_bench(web("a", queue="q")) as bench:
        assert bench.look() == []
        bench.show(queue("q"))
        assert bench.look() == [("create group", GROUP)]


def test_a_deleted_podgroup_is_not_created_again() -> None:
    with closed(web("a", named=True, queue="q")) as bench:
        bench.show(group(GROUP, 1, "q"))
        bench.look()
        bench.lose(GROUP)
        bench.advance(60)
        assert bench.look() == []


def test_a_pod_that_is_given_another_queue_gets_its_group_there() -> None:
    with closed(web("a", named=True, queue="q")) as bench:
        moved = web("a", named=True, queue="r")
        bench.api.pods["a"] = moved
        bench.show(queue("r"), moved)
        assert bench.look() == [("pod", "a"), ("create group", GROUP)]


def test_a_namespace_may_name_another_queue() -> None:
    with writing_bench(web("a"), queue("q", spec_state="Closed"), queue("r")) as bench:
        bench.name_queue("q")
        assert bench.look() == []
        bench.name_queue("r")
        assert bench.look() == [("create group", GROUP)]
        ((_, created),) = bench.api.done("create group")
        assert created["spec"]["queue"] == "r"


def test_deleted_pods_do_not_delay_the_podgroup() -> None:
    with closed(web("a", queue="q")) as bench:
        bench.go("a")
        bench.look()
        bench.show(queue("q", spec_state="Open"))
        assert bench.look() == []


def test_min_member_follows_the_owner() -> None:
    with writing_bench(node("n"), owner("web", "2"), web("a", named=True, cpu="2"), group(GROUP, 3)) as bench:
        assert bench.look() == [("patch", GROUP)]
        ((_, patch),) = bench.api.done("patch")
        assert patch == {"spec": {"minMember": 2, "minResources": {"cpu": "4"}}}


def test_the_podgroup_of_an_owner_scaled_to_zero_is_deleted_with_the_last_pod() -> None:
    with writing_bench(node("n"), owner("web"), web("a", named=True), group(GROUP, 1)) as bench:
        bench.show(owner("web", replicas=0))
        assert bench.look() == []
        bench.go("a")
        assert bench.look() == [("delete group", GROUP)]


# ---- plain pods: they have no owner, and each gets its own group

OWN, MADE = "podgroup-uid-a", [("create group", "podgroup-uid-a")]
EMPTY_NODE, FULL = node("n"), node("n", cpu="0")
ALWAYS, WAITING, NEVER = PlainPods.ALWAYS, PlainPods.WAITING, PlainPods.NEVER


def bound(name: str = "a", **more: Any) -> Pod:
    return pod(name, on="n", **more)


def looks(bench: AutoPodGroupBench, *seconds: float) -> list[tuple[str, str]]:
    """Return the requests after each of so many seconds."""
    writes = bench.look()
    for each in seconds:
        bench.advance(each)
        writes += bench.look()
    return writes


def test_a_waiting_single_pod_gets_a_podgroup_after_a_delay_and_then_its_annotation() -> None:
    with writing_bench(FULL, pod("a"), plain=WAITING) as bench:
        assert looks(bench, 1, 0.9) == []
        assert looks(bench, 0.2) == MADE
        ((_, created),) = bench.api.done("create group")
        assert [each["reason"] for each in created["status"]["conditions"]] == ["NeverFits"]
        bench.show(group(OWN, 1))
        assert looks(bench, 10) == [("name group", "a")]


def test_a_single_pod_that_starts_at_once_gets_no_podgroup_however_long_it_runs() -> None:
    with writing_bench(EMPTY_NODE, pod("a"), plain=WAITING) as bench:
        assert looks(bench, 60) == []
        bench.show(bound(phase="Pending"))
        assert looks(bench, 60) == []
        bench.show(bound())
        assert looks(bench, 60) == []
        bench.go("a")
        assert looks(bench, 60) == []
        assert bench.grouper._unnamed_pods == {}


@each_of(lambda bench: bench.show(EMPTY_NODE), lambda bench: bench.go("a"))
def test_a_single_pod_that_starts_or_is_deleted_within_the_delay_gets_no_podgroup(change: Any) -> None:
    with writing_bench(FULL, pod("a"), plain=WAITING) as bench:
        assert looks(bench, 1) == []
        change(bench)
        assert looks(bench, 1, 60) == []


def test_a_place_in_the_window_is_not_waited_for() -> None:
    """A burst of pods passes the window one by one, although the nodes fit all of them."""
    with writing_bench(
        EMPTY_NODE, pod("a"), pod("b"), plain=WAITING, limits=replace(LIMITS, window=1)
    ) as bench:
        assert looks(bench, 60) == []
        assert bench.reason("podgroup-uid-b") is Reason.WINDOW_FULL


def test_a_single_pod_that_is_bound_when_its_podgroup_appears_gets_the_annotation() -> None:
    with writing_bench(EMPTY_NODE, bound(), plain=WAITING) as bench:
        assert looks(bench) == []
        bench.show(group(OWN, 1))
        assert looks(bench) == [("name group", "a")]


@each_of(pod("a"), bound())
def test_with_never_a_single_pod_gets_no_podgroup(there: Pod) -> None:
    with writing_bench(FULL, there, plain=NEVER) as bench:
        assert looks(bench, 3, 60) == []


def test_with_always_each_single_pod_gets_a_podgroup_at_once_even_a_running_one() -> None:
    with writing_bench(EMPTY_NODE, bound(), pod("b"), plain=ALWAYS) as bench:
        assert sorted(looks(bench)) == [*MADE, ("create group", "podgroup-uid-b")]


@each_of(WAITING, NEVER)
def test_a_podgroup_from_before_the_setting_stays_and_is_updated(plain: PlainPods) -> None:
    with writing_bench(EMPTY_NODE, pod("a"), group(OWN, 1), plain=plain) as bench:
        assert looks(bench, 60) == [("name group", "a")]


@each_of(WAITING, NEVER)
def test_pods_of_a_controller_get_their_podgroup_at_once(plain: PlainPods) -> None:
    with writing_bench(EMPTY_NODE, owner("web"), web("a"), plain=plain) as bench:
        assert looks(bench) == [("create group", GROUP)]


@each_of((pod("a", OWN), MADE), (bound(group=OWN), []))
def test_a_deleted_podgroup_of_a_single_pod_is_created_again_only_for_a_waiting_pod(
    there: Pod, again: list[Any]
) -> None:
    with writing_bench(FULL, there, group(OWN, 1), plain=WAITING) as bench:
        bench.look()
        bench.api.pods["a"] = there
        bench.lose(OWN)
        assert [call for call in looks(bench, 60) if call[0] != "pod"] == again


def test_a_new_leader_starts_the_delay_again() -> None:
    with writing_bench(FULL, pod("a"), plain=WAITING) as bench:
        assert looks(bench, 1.5) == []
        bench.leading = False
        assert looks(bench, 60) == []
        bench.leading = True
        assert looks(bench, 1.9) == []
        assert looks(bench, 0.2) == MADE


@each_of((EMPTY_NODE, []), (FULL, MADE))
def test_a_single_pod_gets_a_podgroup_if_it_still_waits_after_its_queue_opened(
    there: Node, asked: list[Any]
) -> None:
    with writing_bench(there, queue("q", spec_state="Closed"), pod("a", queue="q"), plain=WAITING) as bench:
        assert looks(bench, 3, 60) == []
        bench.show(queue("q", spec_state="Open"))
        assert looks(bench, 60) == asked
