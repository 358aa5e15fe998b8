"""Jobs as units of the queue: pods-to-be are planned on real nodes, and each claim passes to a new pod."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace
from extender.api.objects.queues import LocalQueue, LocalQueueSpec
from extender.api.workloads.sets import JOB_SET
from extender.api.workloads.table import WORKLOADS
from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.shapes import Shapes
from extender.domain.snapshot.decisions import state_transition
from extender.domain.snapshot.job_start_and_suspension import JobStep, ManagedJob
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRecord, job_record
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import HOSTNAME, NAMESPACE, SCHEDULER, foreign_pod, group, node, pod, queue
from tests.domain.job_world import REFUSAL, JobWorld, job, pod_of, podgroup_name
from tests.domain.world import EPOCH, key
from tests.rows import each_of


def test_a_job_waits_without_pods_until_all_of_them_fit() -> None:
    world = JobWorld(node("n0", cpu="4")).submit(job("first", 4), job("second", 2)).run_whole("first")
    world.work()
    assert world.suspended("second")
    assert world.pods_of("second") == []
    assert world.reason(podgroup_name("second")) is Reason.NO_ROOM
    assert world.verdict(podgroup_name("first")) is Verdict.RUNNING
    world.finish(*world.pods_of("first")).work()
    assert not world.suspended("second")


def test_capacity_is_claimed_before_the_pods_exist_and_passes_to_them() -> None:
    world = JobWorld(node("n0", cpu="2"), node("n1", cpu="2"))
    world.stopped = True
    world.submit(job("train", 4)).work()
    assert not world.suspended("train")
    assert sorted(world.decision(podgroup_name("train")).plan.values()) == ["n0", "n0", "n1", "n1"]
    world.submit(job("late", 1)).work()
    assert world.suspended("late"), "the capacity is taken, although no pod uses it"
    world.stopped = False
    world.work()
    assert {world.stage(name) for name in world.pods_of("train")} == {ClaimStage.PLANNED}
    assert sorted(world.plan(podgroup_name("train")).values()) == ["n0", "n0", "n1", "n1"]


@each_of((2, 1, "c"), (1, 1, "b"))
def test_jobs_start_in_the_order_of_their_creation_and_names(one: int, two: int, first: str) -> None:
    """Their groups are made later at the same time, and the UIDs in the groups' names have another order."""
    created = {"b": f"2026-01-01T00:00:0{one}Z", "c": f"2026-01-01T00:00:0{two}Z"}
    jobs = [job(name, created=at, uid=f"{9 - n}") for n, (name, at) in enumerate(created.items())]
    world = JobWorld(node("n0", cpu="2")).submit(*jobs).work()
    assert [name for name in created if not world.suspended(name)] == [first]


@each_of(*WORKLOADS)
def test_jobs_of_all_kinds_may_say_how_long_they_run(kind: tuple[str, str]) -> None:
    reported = AnyJob(Meta(name="a", namespace=NAMESPACE, uid="u", annotations={keys.RUN_TIME: "1h30m"}))
    assert job_record(JobKind(*kind), reported, WORKLOADS, Shapes(), (SCHEDULER,), True).run_time == 5400.0


@each_of(("Complete", "Completed"), ("Failed", "Failed"))
def test_a_job_that_has_ended_stays_so_when_its_pods_are_gone(condition: str, outcome: str) -> None:
    """It does not wait for members again."""
    world = JobWorld(node("n0", cpu="2")).submit(job("short", queue="default")).work()
    world.stopped = True
    ended = {"conditions": [{"type": condition, "status": "True"}]}
    world.submit(replace(world.jobs["short"], status=ended))
    for name in world.pods_of("short"):
        world.delete(name)
    world.settle()
    decision = world.decision(podgroup_name("short"))
    assert (decision.verdict, decision.life.outcome, decision.life.phase) == ("Ended", outcome, "Completed")
    assert world.claim_count() == 0


def test_a_job_that_misses_its_start_timeout_is_suspended_and_frees_its_capacity() -> None:
    world = JobWorld(node("n0", cpu="2"), queue("q", start_timeout="1m"))
    world.stopped = True
    world.submit(job("stuck", queue="q"), job("next", queue="q", created="2026-01-02T00:00:00Z")).work()
    assert [world.suspended(name) for name in ("stuck", "next")] == [False, True]
    world.advance(61).work()
    assert ("stuck", JobStep.GIVE_UP) in world.steps
    assert [world.suspended(name) for name in ("stuck", "next")] == [True, False]
    assert world.reason(podgroup_name("stuck")) is Reason.BACKING_OFF


def test_a_job_that_cannot_be_unsuspended_frees_its_capacity_until_it_can() -> None:
    """Its author changes it faster than Muster can, or a webhook is away."""
    world = JobWorld(node("n0", cpu="2"))
    world.locked.add("stuck")
    world.submit(job("stuck"), job("next", created="2026-01-02T00:00:00Z")).work()
    assert [world.suspended(name) for name in ("stuck", "next")] == [True, True]
    managed = world.ledger.managed_job(key(podgroup_name("stuck")))
    assert managed is not None
    assert managed.due_at == world.now + 60.0
    world.advance(61).work()
    assert [world.suspended(name) for name in ("stuck", "next")] == [True, False]
    assert world.detail(podgroup_name("stuck")) == "the job could not be unsuspended within 60 s"
    world.remove("next")
    world.delete(*world.pods_of("next"))
    world.locked.clear()
    world.advance(10).work()
    assert not world.suspended("stuck")


def test_a_job_without_pods_names_the_controller_that_it_waits_for() -> None:
    world = JobWorld(node("n0", cpu="2"))
    world.stopped = True
    world.submit(job("stuck", 2)).work().advance(2).work()
    starting = world.decision(podgroup_name("stuck"))
    transition = state_transition(starting)
    assert transition is not None
    assert (starting.verdict, world.figures(podgroup_name("stuck"))) == (Verdict.STARTING, ["0", "2"])
    assert transition.message.endswith(starting.detail)
    world.advance(10).work().advance(10).work()
    assert world.figures(podgroup_name("stuck")) == ["0", "2"]


def refused(**options: Any) -> JobWorld:
    """Return a world with a gang of three, a quota of two pods, and a gang that waits for capacity."""
    world = JobWorld(node("n0", cpu="3"))
    world.quota = 2
    world.submit(job("cut", 3), job("next", 2, created="2026-01-02T00:00:00Z", **options)).work()
    assert [world.suspended(name) for name in ("cut", "next")] == [False, True]
    return world


def test_a_job_whose_pods_are_refused_frees_its_capacity_within_seconds() -> None:
    world = refused()
    world.advance(2).work()
    assert world.steps[-3:] == [
        ("cut", JobStep.LOOK_UP_REFUSALS),
        ("cut", JobStep.GIVE_UP),
        ("next", JobStep.UNSUSPEND),
    ]
    assert [world.suspended(name) for name in ("cut", "next")] == [True, False]
    assert world.pods_of("cut") == []
    decision = world.decision(podgroup_name("cut"))
    assert (decision.reason, decision.detail) == (Reason.BACKING_OFF, f"its pods are refused: {REFUSAL}")


def test_a_job_whose_pods_were_refused_starts_once_they_are_not_however_often_that_was() -> None:
    world = JobWorld(node("n0", cpu="3"))
    world.quota = 2
    world.submit(job("cut", 3)).work()
    for _ in range(5):
        assert len(world.pods_of("cut")) == 2
        world.advance(2).work()
        assert world.suspended("cut")
        world.advance(300).work()
    assert late(world, "cut") == 0
    world.quota = 3
    assert world.run_whole("cut").work().verdict(podgroup_name("cut")) is Verdict.RUNNING


def test_pods_that_come_after_a_refusal_make_it_a_start_again() -> None:
    """Their controller tries again by itself, and the API server was busy, or its webhook not ready."""
    world = refused()
    world.advance(1)
    world.quota = 3
    world.work().advance(5).work()
    assert JobStep.LOOK_UP_REFUSALS not in {step for _, step in world.steps}
    assert world.run_whole("cut").work().verdict(podgroup_name("cut")) is Verdict.RUNNING


def test_a_job_that_starts_one_by_one_runs_with_the_pods_that_it_gets() -> None:
    """Capacity is reserved for the others until they are refused."""
    world = JobWorld(node("n0", cpu="3"))
    world.quota = 2
    apart = {keys.MIN_MEMBER: "1"}
    world.submit(job("cut", 3, completions=3, annotations=apart)).work()
    for name in ("cut-0", "cut-1"):
        world.scheduler_takes(name).run(name).work()
    assert world.claim_count() == 3
    world.advance(2).work()
    assert not world.suspended("cut")
    assert world.claim_count() == 2
    world.quota = 3
    assert world.work().claim_count() == 3


def test_a_controller_that_makes_no_pods_is_asked_ever_more_rarely() -> None:
    world = JobWorld(node("n0", cpu="2"), queue("q", start_timeout="2m"))
    world.stopped = True
    world.submit(job("stuck", queue="q")).work()
    calls: list[int] = []
    for second in range(120):
        if world.work().steps.count(("stuck", JobStep.LOOK_UP_REFUSALS)) > len(calls):
            calls.append(second)
        world.advance(1)
    assert calls == [2, 4, 8, 16, 32, 62, 92]


def test_after_three_times_it_is_held() -> None:
    world = JobWorld(node("n0", cpu="2"), queue("q", start_timeout="1m"))
    world.stopped = True
    world.submit(job("stuck", queue="q")).work()
    for _ in range(3):
        world.advance(400).work()
        world.advance(400).work()
    assert world.suspended("stuck")
    assert world.reason(podgroup_name("stuck")) is Reason.START_TIMED_OUT
    assert world.claim_count() == 0


def test_pods_that_are_bound_but_do_not_run_in_time_make_it_go_back() -> None:
    world = (
        JobWorld(node("n0", cpu="2"), queue("q", start_timeout="1m")).submit(job("pulls", queue="q")).work()
    )
    world.scheduler_takes(*world.pods_of("pulls"))
    world.pass_time(61)
    world.work()
    assert world.suspended("pulls")
    assert world.pods_of("pulls") == []


def test_a_job_that_started_in_time_has_no_start_timeout() -> None:
    world = JobWorld(node("n0", cpu="2"), queue("q", start_timeout="1m")).submit(job("runs", queue="q"))
    world.run_whole("runs").work()
    world.pass_time(10_000)
    world.work()
    assert not world.suspended("runs")


def test_a_job_suspended_by_its_user_frees_its_capacity_and_stays_out() -> None:
    world = JobWorld(node("n0", cpu="2")).submit(job("first"), job("second")).run_whole("first").work()
    world.change("first", suspend=True)
    world.work()
    assert world.suspended("first")
    assert not world.suspended("second")


def test_a_job_deleted_between_decision_and_start_leaves_no_claim() -> None:
    world = JobWorld(node("n0", cpu="2"))
    world.stopped = True
    world.submit(job("gone")).settle()
    assert world.claim_count() == 2
    world.remove("gone")
    world.settle()
    assert world.claim_count() == 0


@each_of(0, 10**9, -1, "many")
def test_absurd_counts_cost_only_their_own_job(parallelism: object) -> None:
    world = JobWorld(node("n0", cpu="2"))
    world.submit(job("odd", parallelism), job("fine")).work()  # type: ignore[arg-type]
    assert not world.suspended("fine")


def test_a_template_that_cannot_be_read_is_the_jobs_reason() -> None:
    world = JobWorld(node("n0", cpu="2"))
    broken = job("odd")
    broken.spec["template"]["spec"]["containers"] = "none"
    world.submit(broken, job("fine")).work()
    assert world.reason(podgroup_name("odd")) is Reason.INVALID_SPEC
    assert not world.suspended("fine")


@each_of(job("theirs", scheduler="default-scheduler"), job("free", queue=""))
def test_a_job_of_another_scheduler_or_without_a_queue_is_left_alone(given: AnyJob) -> None:
    assert JobWorld(node("n0", cpu="2")).submit(given).work().steps == []


@each_of(
    ({keys.MANAGED: "true"}, {}, True),
    ({keys.MANAGED: "false"}, {}, False),
    ({keys.MANAGED: "true"}, {keys.MANAGED: "false"}, False),
)
def test_a_job_without_a_scheduler_name_waits_in_an_adopted_namespace(
    labels: dict[str, str], of_template: dict[str, str], is_managed: bool
) -> None:
    plain = job("plain", scheduler="default-scheduler")
    plain.spec["template"]["metadata"] = {"annotations": of_template}
    world = JobWorld(node("n0", cpu="1")).submit(plain)
    world.ledger.intake.set_namespace(Namespace(Meta(NAMESPACE, labels=labels)))
    world.work()
    assert bool(world.steps) is is_managed


def test_after_a_restart_an_unsuspended_job_without_pods_gets_its_capacity_again() -> None:
    before = JobWorld(node("n0", cpu="2"))
    before.stopped = True
    before.submit(job("train")).work()
    world = JobWorld(node("n0", cpu="2"))
    world.stopped = True
    world.podgroups = dict(before.podgroups)
    world.add(*world.podgroups.values()).submit(before.jobs["train"], job("late", 1)).work()
    assert world.suspended("late"), "its capacity is not allocated twice"
    world.stopped = False
    world.run_whole("train").work()
    assert world.verdict(podgroup_name("train")) is Verdict.RUNNING


def test_pods_that_an_earlier_run_has_finished_do_not_count_for_the_next_start() -> None:
    world = JobWorld(node("n0", cpu="2")).submit(job("train", 2)).run_whole("train").work()
    world.finish("train-0")
    finished = world.pods["train-0"]
    world._suspend("train")
    world.work()
    world.add(finished)
    world.work()
    assert world.decision(podgroup_name("train")).verdict is Verdict.STARTING
    assert not world.suspended("train")


def test_parallelism_changed_while_it_waits_is_followed() -> None:
    world = JobWorld(node("n0", cpu="2")).submit(job("train", 5)).work()
    assert world.reason(podgroup_name("train")) is Reason.NEVER_FITS
    world.change("train", parallelism=2)
    world.work()
    assert not world.suspended("train")
    assert keys.STARTED in (world.jobs["train"].metadata.annotations or {})


# ---- jobs as victims


def full_of_jobs() -> JobWorld:
    """Return two jobs of a queue that deserves half, then one of a queue that holds nothing."""
    world = JobWorld(node("n0", cpu="4"), queue("greedy"), queue("starved"))
    for name, created in (("old", "2026-01-01T00:00:00Z"), ("young", "2026-01-02T00:00:00Z")):
        world.submit(job(name, 2, queue="greedy", created=created)).run_whole(name).work()
    world.pass_time(60)
    return world.submit(job("due", 2, queue="starved"))


def test_a_reclaimed_job_is_suspended_as_a_whole_and_queues_again() -> None:
    world = full_of_jobs().work()
    assert ("young", JobStep.SUSPEND_FOR_OTHERS) in world.steps
    assert [world.suspended(name) for name in ("old", "young")] == [False, True]
    world.run_whole("due").work()
    assert world.verdict(podgroup_name("due")) is Verdict.RUNNING
    assert world.verdict(podgroup_name("young")) is Verdict.WAITING
    world.finish(*world.pods_of("due")).work()
    assert not world.suspended("young")


def test_no_single_pod_of_a_job_is_chosen() -> None:
    world = full_of_jobs()
    for name in ("old", "young"):
        world.add(group(podgroup_name(name), 1, queue="greedy"))  # all its pods but one are surplus
    world.settle()
    world.settle()
    victims = {eviction.victim.name for eviction in world.decisions.evictions.values()}
    assert victims in ({"old-0", "old-1"}, {"young-0", "young-1"})


def test_pods_that_are_made_once_others_have_ended_need_no_capacity_at_the_start() -> None:
    pods = {"parallelism": 2, "completions": 2, "template": job("a").spec["template"]}
    first = {"name": "load", "template": {"spec": pods}}
    then = {"name": "train", "replicas": 3, "dependsOn": [{"name": "load", "status": "Complete"}]}
    spec = {"suspend": True, "replicatedJobs": [first, {**first, **then}]}

    def record(**status: Any) -> JobRecord:
        read = AnyJob(job("a").metadata, spec, status)
        return job_record(JobKind(*JOB_SET.key), read, WORKLOADS, Shapes(), [SCHEDULER], True)

    assert (record().pod_count, record().declared_count) == (2, 2)
    assert record(replicatedJobsStatus=[{"name": "load", "succeeded": 1}]).pod_count == 6


@each_of("kept", None, "2100-01-01T00:00:00Z")
def test_a_job_that_reaches_the_run_time_limit_of_its_queue_is_stopped_for_good(record: str | None) -> None:
    """Stop the job even if its author changes the note of its admission by Muster."""
    world = JobWorld(node("n0", cpu="2"), queue("q", max_run_time="1h"))
    world.submit(job("long", queue="q"), job("next", queue="q", created="2026-01-02T00:00:00Z"))
    world.run_whole("long").work()
    if record != "kept":
        world.annotate("long", **{keys.STARTED: record})
    world.pass_time(3599)
    world.work()
    assert not world.suspended("long")
    world.pass_time(2)
    world.work()
    assert [world.suspended(name) for name in ("long", "next")] == [True, False]
    assert world.steps.count(("long", JobStep.UNSUSPEND)) == 1


def test_the_podgroup_of_a_finished_job_is_removed_after_an_hour() -> None:
    world = JobWorld(node("n0", cpu="2")).submit(job("done")).run_whole("done").work()
    world.finish(*world.pods_of("done"))
    before = world.jobs["done"]
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    world.submit(replace(before, status=complete)).work()
    world.pass_time(3000)
    assert "done" in world.work().podgroups
    world.pass_time(700)
    assert "done" not in world.work().podgroups
    assert ("done", JobStep.MAKE_PODGROUP) not in world.steps[1:]


def test_a_template_changed_while_the_job_waits_is_followed() -> None:
    world = JobWorld(node("n0", cpu="2")).submit(job("train", 2, cpu="4")).work()
    assert world.reason(podgroup_name("train")) is Reason.NEVER_FITS
    smaller = job("train", 2, cpu="1")
    world.submit(smaller).work()
    assert not world.suspended("train")
    assert sorted(world.plan(podgroup_name("train")).values()) == ["n0", "n0"]


def test_pods_to_be_keep_away_from_pods_that_their_terms_select() -> None:
    world = JobWorld(node("n0", cpu="4"), node("n1", cpu="4"))
    world.add(foreign_pod("apart", on="n0", labels={"app": "x"}))
    new_job = job("train", 1)
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    new_job.spec["template"]["spec"]["affinity"] = {"podAntiAffinity": terms}
    world.stopped = True
    world.submit(new_job).work()
    assert set(world.decision(podgroup_name("train")).plan.values()) == {"n1"}
    world.remove("train")
    world.settle()
    assert not world.ledger.claims.capacity.terms._pod_counts


def test_the_pods_that_jobs_of_one_namespace_may_wait_for_are_bounded() -> None:
    world = JobWorld(node("n0", cpu="2"), limits=Limits(expected_pods=10))
    names = [f"j{number}" for number in range(4)]
    world.submit(*(job(name, 4, created=f"2026-01-0{name[1]}T00:00:00Z") for name in names)).work()
    assert expected(world) == 8, "two of them; the others are crowded out"
    assert [world.reason(podgroup_name(name)) for name in names[2:]] == [Reason.BEHIND_OTHERS] * 2
    world.remove("j0")
    world.work()
    assert expected(world) == 8
    assert world.reason(podgroup_name("j2")) is not Reason.BEHIND_OTHERS
    for name in names[1:]:
        world.remove(name)
    world.work()
    assert expected(world) == 0
    assert not world.ledger._expected_members._crowded_out_groups
    assert not +world.ledger._expected_members._expected_counts


def expected(world: JobWorld) -> int:
    groups = world.ledger.registry.groups.values()
    return sum(pod.is_expected for group in groups for pod in group.pods.values())


def test_earlier_start_timeouts_do_not_count_once_a_job_runs() -> None:
    world = JobWorld(node("n0", cpu="2"), queue("q", start_timeout="1m"))
    world.stopped = True
    world.submit(job("slow", queue="q")).work()
    world.advance(61).work()
    assert late(world, "slow") == 1
    world.stopped = False
    world.advance(400)
    world.run_whole("slow").work()
    assert late(world, "slow") == 0


def late(world: JobWorld, name: str) -> int:
    record = world.ledger.groups.record(GroupKey(f"{NAMESPACE}/{podgroup_name(name)}"))
    assert record is not None
    return record.start_timeouts


def test_after_a_restart_a_job_of_which_most_pods_have_ended_is_left_alone() -> None:
    """Leave the job alone when the objects of these pods are gone: pods that it makes at once now run."""
    ran = job("ran", 4, completions=10, annotations={keys.STARTED: "2026-01-01T00:00:00Z"}, suspended=False)
    world = JobWorld(node("n0", cpu="4"), queue("default", start_timeout="1m"))
    world.stopped = True
    world.podgroups["ran"] = group(podgroup_name("ran"), 4, queue="default", stood_whole=True)
    world.add(world.podgroups["ran"], *(pod_of(ran, f"ran-{number}", on="n0") for number in range(2)))
    world.submit(replace(ran, status={"succeeded": 8, "startTime": "2026-01-01T00:00:00Z"})).work()
    world.pass_time(600)
    world.work()
    assert not world.suspended("ran")


def test_the_longest_run_time_outlives_a_restart() -> None:
    begun = datetime.fromtimestamp(EPOCH + 1000 - 3500, UTC).isoformat()
    ran = job("ran", 1, queue="q", annotations={keys.STARTED: begun}, suspended=False)
    world = JobWorld(node("n0", cpu="4"), queue("q", max_run_time="1h"))
    world.podgroups["ran"] = group(podgroup_name("ran"), 1, queue="q")
    world.add(world.podgroups["ran"], pod_of(ran, "ran-0", on="n0")).submit(ran).work()
    assert not world.suspended("ran")
    world.pass_time(101)
    world.work()
    assert world.suspended("ran")


# ---- next to Kueue


def labelled(name: str, label: str = keys.KUEUE_QUEUE, **options: Any) -> AnyJob:
    new_job = job(name, **options)
    return replace(new_job, metadata=replace(new_job.metadata, labels={label: "lq"}))


LOCAL = LocalQueue(Meta(name="lq", namespace=NAMESPACE, uid="uid-lq"), LocalQueueSpec("default"))


@each_of("default", "")
def test_a_job_of_kueue_is_left_to_it_whatever_queue_it_has(named: str) -> None:
    """Its namespace names one, too."""
    annotated = Namespace(Meta(name=NAMESPACE, annotations={keys.QUEUE: "default"}))
    world = JobWorld(node("n0", cpu="2"), annotated)
    world.ledger.intake.record_kueue(True)
    world.submit(labelled("theirs", queue=named), labelled("ours", keys.LOCAL_QUEUE, queue=named)).work()
    assert world.suspended("theirs")
    assert "theirs" not in world.podgroups
    assert "ours" in world.podgroups, "our own label is meant for no other controller"


@each_of("LocalQueue", "Kueue")
def test_a_job_of_kueue_is_managed_with_a_local_queue_or_without_kueue(turn: str) -> None:
    world = JobWorld(node("n0", cpu="2"))
    world.ledger.intake.record_kueue(True)
    world.submit(labelled("train", queue="")).work()
    assert "train" not in world.podgroups
    if turn == "Kueue":
        world.ledger.intake.record_kueue(False)
        assert world.work().reason(podgroup_name("train")) is Reason.QUEUE_NOT_FOUND
    world.add(LOCAL)
    assert not world.work().suspended("train")


def test_a_job_that_waits_goes_to_kueue_with_its_local_queue() -> None:
    world = JobWorld(node("n0", cpu="1"), LOCAL)
    world.ledger.intake.record_kueue(True)
    world.submit(labelled("train", queue="")).work()
    assert world.reason(podgroup_name("train")) is not None
    world.ledger.intake.drop_local_queue(f"{NAMESPACE}/lq")
    world.add(node("n1", cpu="9"))
    assert world.work().suspended("train")


@each_of({"parallelism": 3}, {"template": {}})
def test_a_job_that_changed_after_its_decision_is_not_admitted(change: dict[str, Any]) -> None:
    """Wait until the ledger has looked at it again, and that has been decided."""
    world = JobWorld(node("n0", cpu="2")).submit(job("train", 2))
    world.stopped = True
    key = GroupKey(f"{NAMESPACE}/{podgroup_name('train')}")
    world.settle()
    assert managed(world, key).has_capacity
    if "template" in change:
        change = {"template": job("train", 2, cpu="2").spec["template"]}
    world.change("train", **change)
    assert not managed(world, key).has_capacity
    world.ledger.snapshot()
    assert not managed(world, key).has_capacity


def managed(world: JobWorld, key: GroupKey) -> ManagedJob:
    found = world.ledger.managed_job(key)
    assert found is not None
    return found


def test_pods_larger_than_those_of_its_template_do_not_take_over_its_capacity() -> None:
    """Refuse these pods, which would pass the ceiling of its queue: any author of pods may name its group."""
    world = JobWorld(queue("q", capability={"cpu": "2"}), node("n0", cpu="8"))
    world.stopped = True
    world.submit(job("j", 2, queue="q")).work()
    assert len(world.decision(podgroup_name("j")).plan) == 2
    world.add(*(pod(f"large-{n}", podgroup_name("j"), cpu="3") for n in range(2))).settle()
    assert (world.plan(podgroup_name("j")), world.reason(podgroup_name("j"))) == ({}, Reason.NEVER_FITS)
