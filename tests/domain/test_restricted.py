"""A restricted queue lets start only what is noted as put there by somebody who may use it."""

from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import OwnerReference
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.jobs import JobRules
from tests.domain.builders import group, node, owner, pod, queue
from tests.domain.job_world import BATCH, JobWorld, job, podgroup_name
from tests.domain.volcano_world import VolcanoWorld, task, volcano_job
from tests.domain.world import World, comparable, gang, key
from tests.rows import each_of

NOTE = {keys.MAY_USE: "vip/PodGroup"}
OF_POD, OF_JOB = {keys.MAY_USE: "vip/Pod"}, {keys.MAY_USE: "vip/Job"}


def world(*objects: Any, trusted: bool = True, **more: Any) -> World:
    cluster = World(node("n", cpu="9"), queue("vip", restricted=True), queue("q"), *objects, **more)
    cluster.ledger.intake.review_users()
    cluster.ledger.intake.trust_uses(trusted)
    return cluster.settle()


def with_note(recorded: str) -> list[Any]:
    notes = {keys.MAY_USE: recorded} if recorded else None
    return [group("g", 1, queue="vip", annotations=notes), pod("g-0", "g")]


@each_of(
    "", "vip", "q/PodGroup", f"{'v' * 254}/PodGroup", "vip/Pod", "vip/PodGroup/x", "/PodGroup", "VIP/PodGroup"
)
def test_a_group_without_its_own_record_waits_and_takes_nothing_from_others(recorded: str) -> None:
    cluster = world(with_note(recorded), gang("other", 9, queue="q"))
    assert cluster.reason("g") is Reason.QUEUE_NOT_ALLOWED
    assert cluster.verdict("other") is Verdict.STARTING


def test_a_group_with_a_record_starts_also_if_the_record_comes_later() -> None:
    assert world(with_note("vip/PodGroup")).verdict("g") is Verdict.STARTING
    cluster = world(with_note(""))
    assert cluster.add(group("g", 1, queue="vip", annotations=NOTE)).settle().verdict("g") is Verdict.STARTING
    again = comparable(decide(cluster.ledger.snapshot()))
    assert again == comparable(cluster.decisions)


def test_a_record_counts_whatever_its_object_grows_to() -> None:
    """Accept the note for any size: RBAC decides who may change an object."""
    cluster = world(with_note("vip/PodGroup"))
    cluster.add(group("g", 3, queue="vip", annotations=NOTE), pod("g-1", "g"), pod("g-2", "g")).settle()
    assert cluster.verdict("g") is Verdict.STARTING


def test_moving_a_group_into_a_restricted_queue_needs_a_record_for_that_queue() -> None:
    cluster = world(queue("other", restricted=True), group("g", 1, queue="vip", annotations=NOTE))
    cluster.add(group("g", 1, queue="other", annotations=NOTE), pod("g-0", "g")).settle()
    assert cluster.reason("g") is Reason.QUEUE_NOT_ALLOWED


def test_records_count_only_while_the_api_server_checks_them() -> None:
    cluster = world(with_note("vip/PodGroup"), trusted=False)
    assert cluster.reason("g") is Reason.QUEUE_NOT_ALLOWED
    cluster.ledger.intake.trust_uses(True)
    assert cluster.settle().verdict("g") is Verdict.STARTING


def test_a_queue_that_is_restricted_later_needs_records_and_running_groups_go_on() -> None:
    cluster = world(gang("runs", 1, queue="q"), gang("waits", 20, queue="q")).start("runs").run("runs-0")
    cluster.add(queue("q", restricted=True)).settle()
    assert (cluster.verdict("runs"), cluster.reason("waits")) == (Verdict.RUNNING, Reason.QUEUE_NOT_ALLOWED)
    assert cluster.decisions.evictions == {}


def test_a_restricted_queue_excludes_no_group_without_reviews() -> None:
    cluster = World(node("n"), queue("vip", restricted=True), gang("g", 1, queue="vip")).settle()
    assert cluster.verdict("g") is Verdict.STARTING


def test_pods_without_a_group_each_need_a_record() -> None:
    alone = [pod("p", queue="vip", annotations=OF_POD), pod("r", queue="vip")]
    cluster = world(*alone, auto_groups=True)
    assert cluster.verdict("podgroup-uid-p") is Verdict.STARTING
    assert cluster.reason("podgroup-uid-r") in (Reason.QUEUE_NOT_ALLOWED, Reason.GROUP_NOT_FOUND)
    pair = [pod(f"p-{n}", queue="vip", owner="rs", annotations=notes) for n, notes in enumerate((OF_POD, {}))]
    cluster = world(owner("rs", min_member="2"), *pair, auto_groups=True)
    assert cluster.reason("podgroup-uid-rs") is Reason.QUEUE_NOT_ALLOWED


def test_a_pod_that_runs_by_its_own_record_is_not_rejected() -> None:
    cluster = (
        world(pod("p", queue="vip", annotations=OF_POD), auto_groups=True).start("podgroup-uid-p").run("p")
    )
    cluster.settle()
    assert cluster.verdict("podgroup-uid-p") is Verdict.RUNNING
    assert not cluster.ledger.snapshot().groups[key("podgroup-uid-p")].is_refused_entry


def test_a_job_is_reviewed_by_its_own_record_whatever_creates_its_podgroup() -> None:
    def start(annotations: dict[str, str], template: dict[str, str]) -> JobWorld:
        cluster = JobWorld(node("n", cpu="9"), queue("vip", restricted=True))
        cluster.ledger.intake.review_users()
        cluster.ledger.intake.trust_uses(True)
        new_job = job("j", queue="vip", annotations=annotations)
        new_job.spec["template"]["metadata"] = {"annotations": template}
        return cluster.submit(new_job).work()

    assert start({}, {}).reason(podgroup_name("j")) is Reason.QUEUE_NOT_ALLOWED
    assert start({}, OF_POD).reason(podgroup_name("j")) is Reason.QUEUE_NOT_ALLOWED, (
        "its pods are not checked yet"
    )
    cluster = start(OF_JOB, {})
    assert not cluster.suspended("j")
    assert cluster.verdict(podgroup_name("j")) is Verdict.STARTING


def test_pods_of_an_unmanaged_job_are_admitted_by_its_record() -> None:
    def start(annotations: dict[str, str]) -> World:
        new_job, cluster = (
            job("j", queue="", suspended=False, annotations=annotations),
            world(auto_groups=True),
        )
        cluster.ledger.intake.set_controller(BATCH, new_job)
        member = pod("j-0", queue="vip")
        reference = OwnerReference("batch/v1", "Job", "j", "uid-j", True)
        cluster.add(replace(member, metadata=replace(member.metadata, owner_references=[reference])))
        return cluster.settle()

    assert start({}).reason(podgroup_name("j")) is Reason.QUEUE_NOT_ALLOWED
    assert start(OF_JOB).verdict(podgroup_name("j")) is Verdict.STARTING


def test_an_unmanaged_volcano_job_is_admitted_by_its_record_though_muster_makes_its_podgroup() -> None:
    def start(annotations: dict[str, str]) -> VolcanoWorld:
        cluster = VolcanoWorld(node("n"), queue("vip", restricted=True), jobs=JobRules("off"))
        cluster.ledger.intake.review_users()
        cluster.ledger.intake.trust_uses(True)
        new_job = volcano_job("j", task("a", 1), queue="vip")
        cluster.submit(replace(new_job, metadata=replace(new_job.metadata, annotations=annotations)))
        cluster.add(group("j-uid-j", 1, queue="vip"), pod("j-a-0", group="j-uid-j"))
        cluster.settle()
        return cluster

    assert start({}).reason("j-uid-j") is Reason.QUEUE_NOT_ALLOWED
    assert start(OF_JOB).verdict("j-uid-j") is Verdict.STARTING
