"""Users and queues of groups that name none themselves: those of the owners of pods, nearest first."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.queues import (
    LocalQueue,
    LocalQueueSpec,
    PodGroup,
    PodGroupSpec,
    QueueLimits,
    RunningLimit,
)
from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import NAMESPACE, group, node, pod, queue
from tests.domain.world import World, key
from tests.rows import each_of

Owner = tuple[str, Meta]
WEB = "podgroup-uid-web"  # the group of the pods of the ReplicaSet `web`


def owner_record(
    name: str, kind: str, record: str = "", above: str = "", namespace: str = NAMESPACE
) -> Owner:
    """Return an owner and its note, whose controller is the Deployment `above`."""
    above_it = [OwnerReference("apps/v1", "Deployment", above, f"uid-{above}", True)] if above else None
    notes = {keys.AUTHOR: record} if record else None
    return kind, Meta(name, namespace, f"uid-{name}", annotations=notes, owner_references=above_it)


def web(record: str = "", above: str = "d") -> Owner:
    return owner_record("web", "ReplicaSet", record, above)


def deployment(record: str, namespace: str = NAMESPACE) -> Owner:
    return owner_record("d", "Deployment", record, namespace=namespace)


def user(world: World, group: str = WEB) -> str:
    view = world.settle().ledger.registry.groups[key(group)].info
    assert view is not None
    return view.spec.submitter


def world(*owners: Owner) -> World:
    cluster = World(node("n"), queue("q"), pod("web-0", owner="web", queue="q"), auto_groups=True)
    for kind, meta in owners:
        cluster.ledger.intake.set_ancestor(kind, meta)
    return cluster


@each_of(
    ([web("ReplicaSet/ann", above="")], "ann"),
    ([web(), deployment("Deployment/ann")], "ann"),
    ([web("Deployment/eve"), deployment("Deployment/ann")], "ann"),  # copied, perhaps by a user
    ([web("ReplicaSet/bob"), deployment("Deployment/ann")], "bob"),
    ([web(), deployment("Job/ann")], ""),
    ([web()], ""),
    ([web(), owner_record("d", "Deployment", above="web")], ""),  # a loop
    ([web(), deployment("Deployment/ann", namespace="x")], ""),
    ([web(f"ReplicaSet/{'a' * 1025}", above="")], ""),
    ([], ""),
)
def test_the_nearest_author_counts(owners: list[Owner], author: str) -> None:
    assert user(world(*owners)) == author


def test_an_author_that_is_known_late_counts() -> None:
    cluster = world(web())
    assert user(cluster) == ""
    cluster.ledger.intake.set_ancestor(*deployment("Deployment/ann"))
    assert user(cluster) == "ann"
    cluster.ledger.intake.drop_ancestor(NAMESPACE, "uid-d")
    cluster.ledger.registry.mark_dirty(key(WEB))
    assert user(cluster) == ""


@each_of(True, False)
def test_pods_wait_for_an_author_that_is_about_to_be_known_where_that_matters(is_limited: bool) -> None:
    """Pods may be seen before the Deployment above them: users pass no limit by that."""
    cluster = world(web())
    limits = QueueLimits(per_user=RunningLimit(groups=1)) if is_limited else None
    cluster.add(queue("q", limits=limits))
    cluster.ledger.registry.ancestors.are_read = lambda kind: kind == "apps/v1/Deployment"
    assert cluster.settle().verdict(WEB) is (Verdict.WAITING if is_limited else Verdict.STARTING)
    assert cluster.ledger.groups.auto_group(key(WEB)).has_live_pods is not is_limited
    cluster.ledger.intake.set_ancestor(*deployment(""))
    assert cluster.settle().verdict(WEB) is Verdict.STARTING


def test_authors_of_deleted_groups_and_owners_are_forgotten() -> None:
    cluster = world(web())
    assert user(cluster) == ""
    cluster.delete("web-0").settle()
    cluster.ledger.intake.drop_ancestor(NAMESPACE, "uid-web")
    ancestors = cluster.ledger.registry.ancestors
    assert not any(reserved for reserved in vars(ancestors).values() if reserved is not ancestors.are_read)


def test_no_author_counts_that_users_may_have_forged() -> None:
    cluster = world(web("ReplicaSet/ann"))
    assert user(cluster) == "ann"
    cluster.ledger.intake.trust_authors(False)
    assert user(cluster) == ""


def of_operator(submitter: str = "") -> PodGroup:
    """Return the PodGroup of a job, without the name of its operator."""
    new_group = group("g", 1, "q", annotations={keys.SUBMITTER: submitter} if submitter else {})
    reference = OwnerReference("batch.volcano.sh/v1alpha1", "Job", "j", "uid-j", True)
    return replace(new_group, metadata=replace(new_group.metadata, owner_references=[reference]))


@each_of(("", "ann"), ("bob", "bob"))
def test_the_author_of_its_owner_is_the_user_of_an_operators_group(submitter: str, author: str) -> None:
    cluster = World(queue("q"), of_operator(submitter))
    cluster.ledger.intake.set_ancestor(*owner_record("j", "Job", "Job/ann"))
    assert user(cluster, "g") == author


def test_pods_that_a_pod_makes_have_its_author() -> None:
    cluster = World(node("n"), queue("q"), auto_groups=True)
    driver = pod("driver", queue="q", annotations={keys.AUTHOR: "Pod/ann"})
    executor = pod("executor", queue="q")
    of_driver = [OwnerReference("v1", "Pod", "driver", "uid-driver", True)]
    cluster.add(driver, replace(executor, metadata=replace(executor.metadata, owner_references=of_driver)))
    assert user(cluster, "podgroup-uid-driver") == "ann"


# ---- queues


def naming(owner: Owner, queue: str = "", local: str = "", may_use: str = "") -> Owner:
    """Return an owner that names a queue or a LocalQueue."""
    kind, meta = owner
    notes = {key: text for key, text in ((keys.QUEUE, queue), (keys.MAY_USE, may_use)) if text}
    return kind, replace(meta, annotations=notes, labels={keys.LOCAL_QUEUE: local} if local else {})


def in_queues(*owners: Owner, own: str = "", more: Sequence[Any] = ()) -> World:
    """Return a world with a pod `web-0` that names queue `own`, and its owners."""
    local = LocalQueue(Meta("door", NAMESPACE), LocalQueueSpec("team"))
    cluster = World(*map(queue, ("default", "q", "other", "team")), local, *more, auto_groups=True)
    cluster.ledger.intake.review_users()
    cluster.ledger.intake.trust_uses(True)
    for kind, meta in owners:
        cluster.ledger.intake.set_ancestor(kind, meta)
    return cluster.add(pod("web-0", owner="web", queue=own)).settle()


@each_of(
    ([naming(web(), "q"), deployment("")], "", "q"),
    ([web(), naming(deployment(""), "q")], "", "q"),
    ([naming(web(), "q"), naming(deployment(""), "other")], "", "q"),
    ([naming(web(), local="door"), naming(deployment(""), "other")], "", "team"),
    ([web(), naming(deployment(""), "q")], "other", "other"),
    ([web(), naming(deployment("", namespace="x"), "q")], "", "default"),
    ([web(), deployment("")], "", "default"),
)
def test_a_group_is_in_the_queue_of_the_nearest_owner(owners: list[Owner], own: str, queue: str) -> None:
    assert in_queues(*owners, own=own).decision(WEB).queue == queue


def test_pods_wait_for_an_owner_that_is_about_to_be_known_and_may_name_a_queue() -> None:
    cluster = World(node("n"), queue("default"), queue("q"), auto_groups=True)
    cluster.ledger.intake.set_ancestor(*web())
    cluster.ledger.intake.expect_ancestors(lambda kind: kind == "apps/v1/Deployment")
    assert cluster.add(pod("web-0", owner="web")).settle().verdict(WEB) is Verdict.WAITING
    cluster.ledger.intake.set_ancestor(*naming(deployment(""), "q"))
    decision = cluster.settle().decision(WEB)
    assert (decision.queue, decision.verdict) == ("q", Verdict.STARTING)


def test_a_waiting_group_follows_when_its_owner_names_another_queue() -> None:
    cluster = in_queues(web(), naming(deployment(""), "q"))
    cluster.add(queue("other", spec_state="Closed"))
    cluster.ledger.intake.set_ancestor(*naming(deployment(""), "other"))
    assert cluster.settle().decision(WEB).queue == "other"


@each_of(
    ("", Reason.QUEUE_NOT_ALLOWED),
    ("q/Deployment", None),
    ("other/Deployment", Reason.QUEUE_NOT_ALLOWED),
)
def test_a_restricted_queue_asks_for_the_record_on_the_owner_that_names_it(
    may_use: str, reason: Reason | None
) -> None:
    above = naming(deployment(""), "q", may_use=may_use)
    cluster = in_queues(web(), above, more=[node("n"), queue("q", restricted=True)])
    assert cluster.decision(WEB).reason is reason


def test_a_podgroup_without_a_queue_is_in_that_of_its_owner() -> None:
    cluster = World(queue("default"), queue("q"))
    cluster.ledger.intake.set_ancestor(*naming(owner_record("j", "Job"), "q"))
    of_job = replace(of_operator(), spec=PodGroupSpec(1, queue="default"))
    assert cluster.add(of_job).settle().decision("g").queue == "q"
