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
    made = World(node("n", cpu="9"), queue("vip", restricted=True), queue("q"), *objects, **more)
    made.ledger.intake.review_users()
    made.ledger.intake.trust_uses(trusted)
    return made.settle()


def with_note(recorded: str) -> list[Any]:
    notes = {keys.MAY_USE: recorded} if recorded else None
    return [group("g", 1, queue="vip", annotations=notes), pod("g-0", "g")]


@each_of(
    "", "vip", "q/PodGroup", f"{'v' * 254}/PodGroup", "vip/Pod", "vip/PodGroup/x", "/PodGroup", "VIP/PodGroup"
)
def test_a_group_without_its_own_record_waits_and_takes_nothing_from_others(recorded: str) -> None:
    there = world(with_note(recorded), gang("other", 9, queue="q"))
    assert there.reason("g") is Reason.QUEUE_NOT_ALLOWED
    assert there.verdict("other") is Verdict.STARTING


def test_a_group_with_a_record_starts_also_if_the_record_comes_later() -> None:
    assert world(with_note("vip/PodGroup")).verdict("g") is Verdict.STARTING
    there = world(with_note(""))
    assert there.add(group("g", 1, queue="vip", annotations=NOTE)).settle().verdict("g") is Verdict.STARTING
    again = comparable(decide(there.ledger.snapshot()))
    assert again == comparable(there.decisions)


def test_a_record_counts_whatever_its_object_grows_to() -> None:
    """Accept the note for any size: RBAC decides who may change an object."""
    there = world(with_note("vip/PodGroup"))
    there.add(group("g", 3, queue="vip", annotations=NOTE), pod("g-1", "g"), pod("g-2", "g")).settle()
    assert there.verdict("g") is Verdict.STARTING


def test_moving_a_group_into_a_restricted_queue_needs_a_record_for_that_queue() -> None:
    there = world(queue("other", restricted=True), group("g", 1, queue="vip", annotations=NOTE))
    there.add(group("g", 1, queue="other", annotations=NOTE), pod("g-0", "g")).settle()
    assert there.reason("g") is Reason.QUEUE_NOT_ALLOWED


def test_records_count_only_while_the_api_server_checks_them() -> None:
    there = world(with_note("vip/PodGroup"), trusted=False)
    assert there.reason("g") is Reason.QUEUE_NOT_ALLOWED
    there.ledger.intake.trust_uses(True)
    assert there.settle().verdict("g") is Verdict.STARTING


def test_a_queue_that_is_restricted_later_needs_records_and_running_groups_go_on() -> None:
    there = world(gang("runs", 1, queue="q"), gang("waits", 20, queue="q")).start("runs").run("runs-0")
    there.add(queue("q", restricted=True)).settle()
    assert (there.verdict("runs"), there.reason("waits")) == (Verdict.RUNNING, Reason.QUEUE_NOT_ALLOWED)
    assert there.decisions.evictions == {}


def test_a_restricted_queue_excludes_no_group_without_reviews() -> None:
    there = World(node("n"), queue("vip", restricted=True), gang("g", 1, queue="vip")).settle()
    assert there.verdict("g") is Verdict.STARTING


def test_pods_without_a_group_each_need_a_record() -> None:
    alone = [pod("p", queue="vip", annotations=OF_POD), pod("r", queue="vip")]
    there = world(*alone, auto_groups=True)
    assert there.verdict("podgroup-uid-p") is Verdict.STARTING
    assert there.reason("podgroup-uid-r") in (Reason.QUEUE_NOT_ALLOWED, Reason.GROUP_NOT_FOUND)
    pair = [pod(f"p-{n}", queue="vip", owner="rs", annotations=notes) for n, notes in enumerate((OF_POD, {}))]
    there = world(owner("rs", min_member="2"), *pair, auto_groups=True)
    assert there.reason("podgroup-uid-rs") is Reason.QUEUE_NOT_ALLOWED


def test_a_pod_that_runs_by_its_own_record_is_not_rejected() -> None:
    there = (
        world(pod("p", queue="vip", annotations=OF_POD), auto_groups=True).start("podgroup-uid-p").run("p")
    )
    there.settle()
    assert there.verdict("podgroup-uid-p") is Verdict.RUNNING
    assert not there.ledger.snapshot().groups[key("podgroup-uid-p")].is_refused_entry


def test_a_job_is_reviewed_by_its_own_record_whatever_creates_its_podgroup() -> None:
    def start(annotations: dict[str, str], template: dict[str, str]) -> JobWorld:
        there = JobWorld(node("n", cpu="9"), queue("vip", restricted=True))
        there.ledger.intake.review_users()
        there.ledger.intake.trust_uses(True)
        made = job("j", queue="vip", annotations=annotations)
        made.spec["template"]["metadata"] = {"annotations": template}
        return there.submit(made).work()

    assert start({}, {}).reason(podgroup_name("j")) is Reason.QUEUE_NOT_ALLOWED
    assert start({}, OF_POD).reason(podgroup_name("j")) is Reason.QUEUE_NOT_ALLOWED, (
        "its pods are not checked yet"
    )
    there = start(OF_JOB, {})
    assert not there.suspended("j")
    assert there.verdict(podgroup_name("j")) is Verdict.STARTING


def test_pods_of_an_unmanaged_job_are_admitted_by_its_record() -> None:
    def start(annotations: dict[str, str]) -> World:
        made, there = job("j", queue="", suspended=False, annotations=annotations), world(auto_groups=True)
        there.ledger.intake.set_controller(BATCH, made)
        member = pod("j-0", queue="vip")
        reference = OwnerReference("batch/v1", "Job", "j", "uid-j", True)
        there.add(replace(member, metadata=replace(member.metadata, owner_references=[reference])))
        return there.settle()

    assert start({}).reason(podgroup_name("j")) is Reason.QUEUE_NOT_ALLOWED
    assert start(OF_JOB).verdict(podgroup_name("j")) is Verdict.STARTING


def test_an_unmanaged_volcano_job_is_admitted_by_its_record_though_muster_makes_its_podgroup() -> None:
    def start(annotations: dict[str, str]) -> VolcanoWorld:
        there = VolcanoWorld(node("n"), queue("vip", restricted=True), jobs=JobRules("off"))
        there.ledger.intake.review_users()
        there.ledger.intake.trust_uses(True)
        made = volcano_job("j", task("a", 1), queue="vip")
        there.submit(replace(made, metadata=replace(made.metadata, annotations=annotations)))
        there.add(group("j-uid-j", 1, queue="vip"), pod("j-a-0", group="j-uid-j"))
        there.settle()
        return there

    assert start({}).reason("j-uid-j") is Reason.QUEUE_NOT_ALLOWED
    assert start(OF_JOB).verdict("j-uid-j") is Verdict.STARTING
