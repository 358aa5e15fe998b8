"""Users of groups whose PodGroups name none: authors of the owners of pods, nearest first."""

import pytest
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.queues import PodGroup, QueueLimits, RunningLimit
from extender.domain.model.reasons import Verdict
from tests.domain.builders import NAMESPACE, group, node, pod, queue
from tests.domain.world import World, key
from tests.rows import each_of

Owner = tuple[str, Meta]
WEB = "podgroup-uid-web"  # the group of the pods of the ReplicaSet `web`


def made(name: str, kind: str, record: str = "", above: str = "", namespace: str = NAMESPACE) -> Owner:
    """Return an owner and its note, whose controller is the Deployment `above`."""
    above_it = [OwnerReference("apps/v1", "Deployment", above, f"uid-{above}", True)] if above else None
    notes = {keys.AUTHOR: record} if record else None
    return kind, Meta(name, namespace, f"uid-{name}", annotations=notes, owner_references=above_it)


def web(record: str = "", above: str = "d") -> Owner:
    return made("web", "ReplicaSet", record, above)


def deployment(record: str, namespace: str = NAMESPACE) -> Owner:
    return made("d", "Deployment", record, namespace=namespace)


def user(world: World, group: str = WEB) -> str:
    view = world.settle().ledger.registry.groups[key(group)].info
    assert view is not None
    return view.spec.submitter


def world(*owners: Owner) -> World:
    there = World(node("n"), queue("q"), pod("web-0", owner="web", queue="q"), auto_groups=True)
    for kind, meta in owners:
        there.ledger.intake.set_author(kind, meta)
    return there


@each_of(
    ([web("ReplicaSet/ann", above="")], "ann"),
    ([web(), deployment("Deployment/ann")], "ann"),
    ([web("Deployment/eve"), deployment("Deployment/ann")], "ann"),  # copied, perhaps by a user
    ([web("ReplicaSet/bob"), deployment("Deployment/ann")], "bob"),
    ([web(), deployment("Job/ann")], ""),
    ([web()], ""),
    ([web(), made("d", "Deployment", above="web")], ""),  # a loop
    ([web(), deployment("Deployment/ann", namespace="x")], ""),
    ([web(f"ReplicaSet/{'a' * 1025}", above="")], ""),
    ([], ""),
)
def test_the_nearest_author_counts(owners: list[Owner], author: str) -> None:
    assert user(world(*owners)) == author


def test_an_author_that_is_known_late_counts() -> None:
    there = world(web())
    assert user(there) == ""
    there.ledger.intake.set_author(*deployment("Deployment/ann"))
    assert user(there) == "ann"
    there.ledger.intake.drop_author(NAMESPACE, "uid-d")
    there.ledger.registry.touch(key(WEB))
    assert user(there) == ""


@pytest.mark.parametrize("is_limited", [True, False])
def test_pods_wait_for_an_author_that_is_about_to_be_known_where_that_matters(is_limited: bool) -> None:
    """Pods may be seen before the Deployment above them: users pass no limit by that."""
    there = world(web())
    limits = QueueLimits(per_user=RunningLimit(groups=1)) if is_limited else None
    there.add(queue("q", limits=limits))
    there.ledger.registry.authors.are_read = lambda kind: kind == "apps/v1/Deployment"
    assert there.settle().verdict(WEB) is (Verdict.WAITING if is_limited else Verdict.STARTING)
    assert there.ledger.groups.auto_group(key(WEB)).lives is not is_limited
    there.ledger.intake.set_author(*deployment(""))
    assert there.settle().verdict(WEB) is Verdict.STARTING


def test_nothing_is_kept_of_groups_and_owners_that_are_gone() -> None:
    there = world(web())
    assert user(there) == ""
    there.delete("web-0").settle()
    there.ledger.intake.drop_author(NAMESPACE, "uid-web")
    authors = there.ledger.registry.authors
    assert not any(reserved for reserved in vars(authors).values() if reserved is not authors.are_read)


def test_no_author_counts_that_users_may_have_forged() -> None:
    there = world(web("ReplicaSet/ann"))
    assert user(there) == "ann"
    there.ledger.intake.trust_authors(False)
    assert user(there) == ""


def of_operator(submitter: str = "") -> PodGroup:
    """Return the PodGroup of a job, without the name of its operator."""
    made = group("g", 1, "q", annotations={keys.SUBMITTER: submitter} if submitter else {})
    reference = OwnerReference("batch.volcano.sh/v1alpha1", "Job", "j", "uid-j", True)
    return replace(made, metadata=replace(made.metadata, owner_references=[reference]))


@each_of(("", "ann"), ("bob", "bob"))
def test_the_author_of_its_owner_is_the_user_of_an_operators_group(submitter: str, author: str) -> None:
    there = World(queue("q"), of_operator(submitter))
    there.ledger.intake.set_author(*made("j", "Job", "Job/ann"))
    assert user(there, "g") == author


def test_pods_that_a_pod_makes_have_its_author() -> None:
    there = World(node("n"), queue("q"), auto_groups=True)
    driver = pod("driver", queue="q", annotations={keys.AUTHOR: "Pod/ann"})
    executor = pod("executor", queue="q")
    of_driver = [OwnerReference("v1", "Pod", "driver", "uid-driver", True)]
    there.add(driver, replace(executor, metadata=replace(executor.metadata, owner_references=of_driver)))
    assert user(there, "podgroup-uid-driver") == "ann"
