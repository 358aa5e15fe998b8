"""Statuses of PodGroups: written on change, paced, and only on the newest copy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api import keys
from extender.api.keys import ADMITTED, LOST_WORK, QUEUE_UID, SCHEDULED, STOOD_WHOLE
from extender.api.objects.base import Condition, Meta, OwnerReference
from extender.api.objects.queues import (
    AlphaPodGroup,
    GangPolicy,
    NativePodGroup,
    NativePodGroupSpec,
    NativePodGroupStatus,
    PluginsPodGroup,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    SchedulingPolicy,
    WaitingStatus,
)
from extender.controllers import podgroup_status
from extender.controllers.events import StartChanges
from extender.controllers.objects import ObjectStore
from extender.controllers.podgroup_status import (
    PodGroupStatusController,
    ReportedStatus,
    first_status,
    reported_status,
)
from extender.controllers.provisioning import ProvisioningRequests
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.wire_records import admitted_record, whole_condition, whole_record
from extender.domain.snapshot.decisions import message_of
from extender.kube.errors import Forbidden, ServerFault
from extender.kube.resources import PLUGINS_POD_GROUPS
from tests.controllers.bench import RETRY_SECONDS
from tests.controllers.podgroup_bench import PodGroupBench, crowd, requeue_changed, versioned
from tests.domain import builders
from tests.domain.builders import NAMESPACE, foreign_pod, node, queue
from tests.domain.job_world import BATCH, job, podgroup_name
from tests.domain.test_composites import composite, pod_group
from tests.domain.world import World, gang, key, names, nodes, timestamp
from tests.rows import each_of

PACE = 5.0
DETAIL_PACE = 15.0
NUMBERS_A_SECOND = 3.0
NUMBERS_AT_ONCE = 10
SETTLING_SECONDS, IN_PASSING = 1.0, 5.0
PAUSE_AFTER_A_START = 300.0
LONG_AGO = "2020-01-01T00:00:00Z"


@contextmanager
def writing_bench(*objects: Any, unexplained: bool = True) -> Iterator[PodGroupBench]:
    bench = PodGroupBench(*objects, unexplained=unexplained)
    with bench.writing(), capture_logs():
        yield bench


def status_of(patch: dict[str, Any]) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return the phase, and the status and reason of each condition."""
    conditions = {each["type"]: (each["status"], each["reason"]) for each in patch["status"]["conditions"]}
    return patch["status"]["phase"], conditions


def test_a_new_jobs_status_says_that_it_waits_once_it_does() -> None:
    """Most start at once: then that is all that is written."""
    with writing_bench(node("n0", cpu="1")) as bench:
        bench.ledger.intake.set_job(BATCH, job("train", 2))
        bench.add(builders.group(podgroup_name("train"), 2)).settle()
        bench.show(podgroup_name("train"))
        assert bench.look() == []
        bench.advance(SETTLING_SECONDS)
        (patch,) = bench.look()
        assert status_of(patch) == ("Pending", {SCHEDULED: ("False", "NeverFits")})


MADE_BY_MUSTER = [OwnerReference("batch/v1", "Job", "train", "uid-train", True)]


@each_of((None, 0, 0.0), (MADE_BY_MUSTER, 0, SETTLING_SECONDS), (MADE_BY_MUSTER, 2, 0.0))
def test_a_started_jobs_status_says_so(owners: list[OwnerReference] | None, pods: int, pause: float) -> None:
    with writing_bench(node("n0", cpu="2")) as bench:
        bench.ledger.intake.set_job(BATCH, job("train", 2))
        new_group = builders.group(podgroup_name("train"), 2)
        bench.add(replace(new_group, metadata=replace(new_group.metadata, owner_references=owners)))
        bench.add(
            [builders.pod(f"train-{number}", podgroup_name("train")) for number in range(pods)]
        ).settle()
        bench.show(podgroup_name("train"))
        if pause:
            assert bench.look() == []
        bench.advance(pause)
        (patch,) = bench.look()
        assert patch["status"]["phase"] == "Inqueue"


def test_a_short_start_of_a_waiting_job_is_not_written() -> None:
    with writing_bench(node("n0", cpu="1")) as bench:
        bench.ledger.intake.set_job(BATCH, job("train", 2))
        new_group = builders.group(podgroup_name("train"), 2)
        bench.add(replace(new_group, metadata=replace(new_group.metadata, owner_references=MADE_BY_MUSTER)))
        bench.settle().show(podgroup_name("train"))
        bench.look()
        bench.advance(SETTLING_SECONDS)
        assert status_of(bench.look()[0])[0] == "Pending"
        bench.advance(60.0).add(node("n1", cpu="2")).settle()
        assert bench.look() == []
        bench.advance(SETTLING_SECONDS)
        assert [status_of(patch)[0] for patch in bench.look()] == ["Inqueue"]


def created_with_status(name: str, queue_name: str) -> PodGroup:
    """Return a PodGroup as Muster makes it for pods that wait for a queue of 1 cpu."""
    waits = World(node("n0"), queue(queue_name, capability={"cpu": "1"}), gang(name, 2, queue=queue_name))
    status = first_status(waits.settle().decision(name))
    return replace(builders.group(name, 2, queue_name), status=msgspec.convert(status, PodGroupStatus))


@each_of(False, True)
def test_the_admitting_queue_is_recorded_with_the_next_write_while_it_is_open(starts: bool) -> None:
    members = [builders.pod(f"g-{number}", "g") for number in range(2)]
    one_cpu = queue("q", capability={"cpu": "1"})
    with writing_bench(node("n0"), one_cpu, created_with_status("g", "q"), members) as bench:
        assert bench.settle().look() == []
        if starts:
            bench.add(queue("q", capability={"cpu": "2"})).settle()
        else:
            bench.advance(SETTLING_SECONDS)
        (patch,) = bench.look()
        admitted = {ADMITTED: "uid-g"} if starts else {}
        assert patch["metadata"]["annotations"] == {QUEUE_UID: "uid-q/uid-g", **admitted}


def test_the_admitting_queue_is_recorded_at_once_when_it_closes() -> None:
    """Note the queue on any number of groups: after a restart, only groups with its note may still start."""
    many = [f"g{number}" for number in range(3 * NUMBERS_AT_ONCE)]
    groups = [created_with_status(name, "q") for name in many]
    members = [builders.pod(f"{name}-{number}", name) for name in many for number in range(2)]
    one_cpu = queue("q", capability={"cpu": "1"})
    with writing_bench(node("n0"), one_cpu, groups, members) as bench:
        assert bench.settle().look() == []
        bench.add(replace(one_cpu, spec=replace(one_cpu.spec, state="Closed"))).settle()
        recorded = [patch["metadata"]["annotations"][QUEUE_UID] for patch in bench.look()]
        assert sorted(recorded) == sorted(f"uid-q/uid-{name}" for name in many)


def test_undone_starts_are_recorded_until_one_succeeds() -> None:
    with writing_bench(node("n"), gang("g", 2)) as bench:
        for recorded in ("1", "2"):
            bench.advance(PAUSE_AFTER_A_START).settle().scheduler_takes("g-0", "g-1").settle()
            bench.finish("g-1", phase="Failed").settle()
            bench.pass_time(31.0)
            bench.look()
            assert (bench.copies["g"].metadata.annotations or {})[keys.START_TIMEOUTS] == recorded
            bench.delete("g-0", "g-1").add(builders.pod("g-0", "g"), builders.pod("g-1", "g"))
        bench.advance(PAUSE_AFTER_A_START).settle().start("g")
        bench.look()
        assert keys.START_TIMEOUTS not in (bench.copies["g"].metadata.annotations or {})


# ---- what is said


def counted(patch: dict[str, Any]) -> tuple[int, int, int]:
    status = patch["status"]
    return (status["running"], status["succeeded"], status["failed"])


def test_counts_of_members_are_written_until_the_group_has_ended() -> None:
    with writing_bench(node("a"), gang("g", 2)) as bench:
        bench.start("g")
        (patch,) = bench.look()
        assert counted(patch) == (2, 0, 0)
        bench.finish("g-0").finish("g-1", phase="Failed").settle()
        (patch,) = bench.look()
        assert status_of(patch)[0] == "Completed"
        assert status_of(patch)[1][SCHEDULED] == ("False", "Failed")
        assert counted(patch) == (0, 1, 1)


def test_phase_and_conditions_follow_a_group_from_its_wait_to_its_end() -> None:
    whole = {STOOD_WHOLE: ("True", "AllMembersStarted")}
    with writing_bench(node("a", cpu="1"), gang("g", 2)) as bench:
        (patch,) = bench.look()
        assert status_of(patch) == ("Pending", {SCHEDULED: ("False", "NeverFits")})
        assert patch["status"]["conditions"][0]["message"] == message_of(bench.decision("g")) != ""
        bench.add(node("a")).settle()
        assert [status_of(patch) for patch in bench.look()] == [
            ("Inqueue", {SCHEDULED: ("False", "Starting")})
        ]
        bench.scheduler_takes(*names("g", 2)).settle()
        assert [status_of(patch) for patch in bench.look()] == [("Running", {SCHEDULED: ("True", "Running")})]
        bench.run(*names("g", 2)).settle()
        assert [status_of(patch) for patch in bench.look()] == [
            ("Running", {SCHEDULED: ("True", "Running"), **whole})
        ]
        bench.finish("g-0", "g-1").settle()
        assert [status_of(patch) for patch in bench.look()] == [
            ("Completed", {SCHEDULED: ("True", "Completed"), **whole})
        ]


def test_counts_alone_wait_for_the_budget() -> None:
    with writing_bench(node("a", cpu="3"), gang("g", 3)) as bench:
        bench.start("g")
        bench.look()
        bench.finish("g-0").settle()
        assert bench.look() == []
        bench.advance(SETTLING_SECONDS)
        assert [counted(patch) for patch in bench.look()] == [(2, 1, 0)]
        bench.finish("g-1").settle()
        assert bench.look() == []
        bench.advance(PACE)
        assert [counted(patch) for patch in bench.look()] == [(1, 2, 0)]


def test_the_admitting_queue_is_recorded_and_stays_recorded_after_its_deletion() -> None:
    with writing_bench(node("a"), queue("q"), gang("g", 2, queue="q")) as bench:
        (patch,) = bench.look()
        assert patch["metadata"]["annotations"] == {QUEUE_UID: "uid-q/uid-g", ADMITTED: "uid-g"}
        bench.ledger.intake.drop_queue("q")
        bench.settle()
        (patch,) = bench.look()
        assert status_of(patch)[1][SCHEDULED] == ("False", Reason.QUEUE_NOT_FOUND)
        assert bench.copies["g"].metadata.annotations == {QUEUE_UID: "uid-q/uid-g"}


def test_the_cost_of_evictions_is_recorded() -> None:
    with writing_bench(node("a", cpu="2"), queue("p"), queue("q"), gang("g", 2, queue="q")) as bench:
        bench.start("g")
        for name in names("g", 2):
            pod = bench.pods[name]
            bench.add(replace(pod, status=replace(pod.status, start_time=timestamp(bench.now))))
        bench.advance(600.0).add(gang("x", 1, queue="p")).settle()
        bench.delete("g-0").settle()
        bench.delete("g-1").settle().advance(DETAIL_PACE)
        bench.look()
        assert (bench.copies["g"].metadata.annotations or {})[LOST_WORK] == "600/uid-g"


def test_a_queue_that_is_not_open_is_not_recorded() -> None:
    with writing_bench(node("a"), queue("q", spec_state="Closed"), gang("g", 2, queue="q")) as bench:
        (patch,) = bench.look()
        assert "annotations" not in patch["metadata"]


def test_a_running_group_that_lacks_members_says_why_and_still_runs() -> None:
    with writing_bench(node("a", cpu="2"), gang("g", 3, min_member=2)) as bench:
        bench.start("g")
        (patch,) = bench.look()
        assert status_of(patch)[1][SCHEDULED] == ("True", Reason.NO_ROOM)


def test_the_transition_time_of_having_run_fully_stays() -> None:
    with writing_bench(node("a"), gang("g", 2)) as bench:
        whole = replace(whole_condition("uid-g", 2), last_transition_time=LONG_AGO)
        copy = bench.copies["g"]
        bench.copies["g"] = replace(copy, status=PodGroupStatus("Pending", [whole]))
        bench.show("g")
        bench.start("g")
        (patch,) = bench.look()
        assert msgspec.to_builtins(whole) in patch["status"]["conditions"]


def test_conditions_of_others_stay() -> None:
    others = Condition("Unschedulable", "True", "SomebodyElse", "words", LONG_AGO)
    with writing_bench(node("a"), gang("g", 2)) as bench:
        bench.copies["g"] = replace(bench.copies["g"], status=PodGroupStatus("", [others]))
        bench.show("g")
        (patch,) = bench.look()
        assert patch["status"]["conditions"][0] == msgspec.to_builtins(others)
        assert len(patch["status"]["conditions"]) == 2


def test_the_transition_time_changes_only_with_the_status() -> None:
    with writing_bench(node("a"), gang("g", 5)) as bench:
        earlier = Condition(SCHEDULED, "False", "NotReady", "", LONG_AGO)
        bench.copies["g"] = replace(bench.copies["g"], status=PodGroupStatus("Pending", [earlier]))
        bench.show("g")
        (waits,) = bench.look()
        assert waits["status"]["conditions"][0]["lastTransitionTime"] == LONG_AGO
        bench.add(nodes("b", "c")).settle().start("g")
        (runs,) = bench.look()
        assert runs["status"]["conditions"][0]["lastTransitionTime"] > LONG_AGO


# ---- when it is said


def test_nothing_is_written_without_a_change() -> None:
    with writing_bench(node("a"), gang("g", 5)) as bench:
        assert len(bench.look()) == 1
        assert bench.look() == []
        bench.add(gang("h", 1)).settle()
        assert bench.look() == []


def test_an_equal_status_is_not_written() -> None:
    with writing_bench(node("a"), gang("g", 5)) as bench:
        condition = Condition(SCHEDULED, "False", Reason.NEVER_FITS, message_of(bench.decision("g")))
        bench.copies["g"] = replace(bench.copies["g"], status=PodGroupStatus("Pending", [condition]))
        bench.show("g")
        assert bench.look() == []


def test_an_overwritten_status_is_written_again() -> None:
    with writing_bench(node("a"), gang("g", 5)) as bench:
        bench.look()
        bench.copies["g"] = versioned(replace(bench.copies["g"], status=PodGroupStatus("Running")), 7)
        bench.show("g")
        (patch,) = bench.look()
        assert status_of(patch)[0] == "Pending"
        assert patch["metadata"]["resourceVersion"] == "7"


def short_of_capacity() -> list[Any]:
    """Return a gang that lacks capacity; its numbers change with the usage of foreign pods."""
    return [node("a"), gang("g", 4), foreign_pod("s", on="a", cpu="500m")]


def test_a_status_that_is_overwritten_repeatedly_is_corrected_with_growing_pauses() -> None:
    """Overwrite the status once a second, as Volcano's scheduler does."""
    with writing_bench(node("a"), gang("g", 5)) as bench:
        bench.look()
        written = 0
        for version in range(7, 107):
            bench.advance(1.0)
            status = PodGroupStatus("Running")
            bench.copies["g"] = versioned(replace(bench.copies["g"], status=status), version)
            bench.show("g")
            written += len(bench.look())
        assert 3 <= written <= 9


def test_a_group_that_may_be_volcanos_is_written_when_it_has_ended() -> None:
    """The PodGroup of a waiting Volcano Job, which creates no pods for it while it is Pending."""
    with writing_bench(node("a"), builders.group("g", 2)) as bench:
        bench.ledger.pods.set_unmanaged(frozenset({"volcano"}))
        bench.settle()
        assert bench.look() == []
        bench.ledger.pods.set_unmanaged(frozenset())
        bench.settle()
        (patch,) = bench.look()
        assert status_of(patch)[0] == "Inqueue"


def test_a_second_write_does_not_wait_for_the_watch_to_show_the_first() -> None:
    with writing_bench(*short_of_capacity()) as bench:
        for _ in range(2):
            bench.reporter.on_decisions(bench.decisions)
            bench.flush()
            bench.add(node("b")).settle()
        reasons = [patch["status"]["conditions"][0]["reason"] for _, patch in bench.api.done("patch")]
        assert (reasons, bench.copies["g"].metadata.resource_version) == (["NoRoom", "Starting"], "3")


def test_an_answer_does_not_replace_a_newer_copy_of_the_watch() -> None:
    with writing_bench(*short_of_capacity()) as bench:
        taking_in, newest = bench.api.patched, versioned(bench.copies["g"], 9)

        def overtaken(name: str, patch: dict[str, Any]) -> PodGroup:
            answer = taking_in(name, patch)
            bench.copies["g"] = newest
            bench.store.put(key("g"), newest)
            return answer

        bench.api.patched = overtaken
        bench.reporter.on_decisions(bench.decisions)
        bench.flush()
        bench.api.patched = taking_in
        (patch,) = bench.look()
        assert patch["metadata"]["resourceVersion"] == "9"


def test_a_changed_detail_waits_for_the_budget() -> None:
    with writing_bench(*short_of_capacity()) as bench:
        (first,) = bench.look()
        texts = [first["status"]["conditions"][0]["message"]]
        bench.advance(SETTLING_SECONDS)
        for n in range(3):
            bench.add(foreign_pod(f"t{n}", on="a", cpu="500m")).settle()
            texts += [patch["status"]["conditions"][0]["message"] for patch in bench.look()]
        assert len(texts) == len(set(texts)) == 2
        bench.advance(DETAIL_PACE)
        (last,) = bench.look()
        assert last["status"]["conditions"][0]["message"] == message_of(bench.decision("g")) not in texts


def test_the_change_that_would_start_a_group_is_written_within_the_budget() -> None:
    """Write the numbers of the remedy in its turn, never with a change of the reason."""
    with writing_bench(*short_of_capacity(), unexplained=False) as bench:
        (first,) = bench.look()
        assert first["status"]["conditions"][0]["message"] == message_of(bench.decision("g"))
        bench.advance(SETTLING_SECONDS)
        (second,) = bench.look()
        why = bench.start_changes.known_explanation(bench.decision("g"))
        assert why is not None
        assert why.change is not None
        change = why.change.sentence
        assert change.startswith("it starts once ")
        assert second["status"]["conditions"][0]["message"] == message_of(bench.decision("g"), change)
        bench.advance(DETAIL_PACE)
        assert bench.look() == []


@each_of((True, "Starting"), (False, "NotEnoughMembers"))
def test_members_that_arrive_one_by_one_change_the_message_only_if_they_are_late(
    arrives: bool, reason: str
) -> None:
    with writing_bench(node("a"), gang("g", 3)[:2]) as bench:
        assert bench.look() == []
        if arrives:
            bench.add(gang("g", 3)[2:]).settle()
        else:
            bench.advance(SETTLING_SECONDS)
        assert [status_of(patch)[1][SCHEDULED][1] for patch in bench.look()] == [reason]


@each_of(True, False)
def test_a_lasting_wait_for_the_max_in_flight_is_written(passes: bool) -> None:
    with writing_bench(node("a", cpu="8"), gang("first", 3), gang("next", 3)[:1]) as bench:
        bench.ledger.limits = replace(bench.ledger.limits, window=4)
        bench.add(gang("next", 3)[1:]).settle()
        assert [status_of(patch)[0] for patch in bench.look()] == ["Inqueue"]
        bench.advance(IN_PASSING - 0.1)
        if passes:
            bench.start("first")
            bench.settle()
        else:
            assert bench.look() == []
            bench.advance(0.1)
        reported = [status_of(patch)[1][SCHEDULED][1] for patch in bench.look()]
        assert reported == (["Running", "Starting"] if passes else ["WindowFull"])


def test_a_group_without_members_says_so_at_once() -> None:
    with writing_bench(node("a"), gang("g", 3)[:1]) as bench:
        assert [status_of(patch)[0] for patch in bench.look()] == ["Inqueue"]


def test_a_changed_phase_is_written_at_once() -> None:
    with writing_bench(*short_of_capacity()) as bench:
        bench.look()
        bench.add(foreign_pod("t", on="a", cpu="500m")).settle()
        bench.look()
        bench.delete("s", "t").settle()
        (patch,) = bench.look()
        assert status_of(patch)[0] == "Inqueue"


def test_a_group_that_the_watch_has_not_shown_is_written_when_it_does() -> None:
    with writing_bench(node("a")) as bench:
        bench.add(gang("g", 5)).settle()
        assert bench.look() == []
        bench.show("g")
        assert len(bench.look()) == 1


def test_a_group_that_is_gone_is_not_written() -> None:
    with writing_bench(node("a"), gang("g", 5)) as bench:
        bench.store.drop(key("g"))
        assert bench.look() == []


# ---- writes that meet others, or fail


def test_status_waiting_has_the_facts_of_the_wait_for_programs() -> None:
    """Its place at once, and what is worked out with the numbers."""
    with writing_bench(*short_of_capacity(), unexplained=False) as bench:
        (first,) = bench.look()
        assert {name for name, value in first["status"]["waiting"].items() if value} == {"since", "position"}
        bench.advance(SETTLING_SECONDS)
        bench.look()
        waiting = bench.copies["g"].status.waiting
        assert waiting is not None
        assert (waiting.position, waiting.ahead, waiting.capability) == (1, [], [])
        assert [(holder.kind, holder.name, holder.holds) for holder in waiting.holders] == [
            ("Pod", "s", {"cpu": "500m"})
        ]
        assert " pod team/s " in waiting.remedy


def test_status_waiting_keeps_its_time_until_the_reason_changes() -> None:
    with writing_bench(*short_of_capacity()) as bench:
        bench.look()
        long_ago = "2026-01-01T00:00:00Z"
        copy = bench.copies["g"]
        assert copy.status.waiting is not None
        waiting = replace(copy.status.waiting, since=long_ago, position=7)
        bench.copies["g"] = versioned(replace(copy, status=replace(copy.status, waiting=waiting)), 7)
        bench.show("g")
        (patch,) = bench.look()
        assert patch["status"]["waiting"]["since"] == long_ago
        bench.ledger.intake.drop_node("a")
        bench.settle()
        (patch,) = bench.look()
        assert patch["status"]["waiting"]["since"] != long_ago


def test_a_kind_that_lacks_the_field_is_not_written_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server drops what the CRD of Volcano does not know."""
    with writing_bench(*short_of_capacity()) as bench:
        reserved = bench._apply_patch

        def pruned(name: str, patch: dict[str, Any]) -> PodGroup:
            copy = reserved(name, patch)
            bench.copies[name] = replace(copy, status=replace(copy.status, waiting=None))
            return bench.copies[name]

        monkeypatch.setattr(bench.api, "patched", pruned)
        assert len(bench.look()) == 1
        for _ in range(3):
            bench.advance(DETAIL_PACE)
            assert bench.look() == []


def test_each_write_names_the_version_that_it_changes() -> None:
    with writing_bench(node("a"), gang("g", 5)) as bench:
        assert bench.look()[0]["metadata"]["resourceVersion"] == "1"
        bench.add(queue("other"), nodes("b")).settle()
        assert bench.look()[0]["metadata"]["resourceVersion"] == "2"


def test_after_a_conflict_the_newest_copy_is_written() -> None:
    with writing_bench(node("a"), gang("g", 5)) as bench:
        newer = versioned(replace(bench.copies["g"], status=PodGroupStatus("", [Condition("X", "True")])), 2)
        bench.copies["g"] = newer
        (refused,) = bench.look()
        assert refused["metadata"]["resourceVersion"] == "1"
        assert bench.look() == []
        bench.show("g")
        (patch,) = bench.look()
        assert patch["metadata"]["resourceVersion"] == "2"
        assert [each["type"] for each in patch["status"]["conditions"]] == ["X", SCHEDULED]


@each_of(1, 2, 3)
def test_a_write_that_failed_is_made_later(failures: int) -> None:
    """Write it even after the writers have given up, after two tries."""
    with writing_bench(node("a"), gang("g", 5)) as bench:
        bench.api.fail("patch", *[ServerFault(500)] * failures)
        for _ in range(failures + 1):
            assert len(bench.look()) == 1
            bench.advance(RETRY_SECONDS)
        assert bench.copies["g"].status.phase == "Pending"
        assert bench.look() == []


def test_a_permanent_refusal_is_not_retried_for_ever() -> None:
    with writing_bench(node("a"), gang("g", 5)) as bench:
        bench.api.fail("patch", Forbidden(403))
        assert len(bench.look()) == 1
        assert bench.look() == []


def test_a_write_dropped_by_the_fence_is_made_once_we_lead_again() -> None:
    """Write it even if the lapse was too short for a look."""
    with writing_bench(node("a"), gang("g", 5)) as bench:
        bench.fence.append(False)
        assert bench.look() == []
        assert len(bench.look()) == 1


def test_a_write_is_of_what_is_decided_and_stored_by_then() -> None:
    started, written, gone = (PodGroupBench(node("a"), gang("g", members)) for members in (2, 5, 5))
    for bench in (started, written, gone):
        bench.reporter.on_decisions(bench.decisions)
    started.start("g")
    condition = Condition(SCHEDULED, "False", Reason.NEVER_FITS, message_of(written.decision("g")))
    waiting = WaitingStatus(position=written.decision("g").position)
    status = PodGroupStatus("Pending", [condition], waiting=waiting)
    written.copies["g"] = replace(written.copies["g"], status=status)
    written.show("g")
    gone.store.drop(key("g"))
    for bench in (started, written, gone):
        with bench.writing():
            bench.flush()
    ((_, patch),) = started.api.done("patch")
    assert status_of(patch)[0] == "Running"
    assert written.api.calls == gone.api.calls == []


def test_groups_of_one_have_no_status_to_write() -> None:
    with writing_bench(node("a"), builders.pod("p")) as bench:
        assert bench.look() == []


# ---- admitted starts


def test_an_admitted_start_is_recorded_until_it_fully_runs() -> None:
    with writing_bench(node("a"), gang("g", 2)) as bench:
        bench.settle()
        (patch,) = bench.look()
        assert patch["metadata"]["annotations"][ADMITTED] == "uid-g"
        assert patch["status"]["phase"] == "Inqueue"
        bench.show("g")
        bench.start("g")
        (patch,) = bench.look()
        assert patch["metadata"]["annotations"][ADMITTED] is None


def test_a_group_with_full_annotations_gets_a_status_and_no_records() -> None:
    """The API server takes 256 KiB of annotations."""

    def fill(name: str) -> None:
        meta = bench.copies[name].metadata
        notes = {**(meta.annotations or {}), "note": "x" * (256 * 1024 - 200)}
        bench.add(replace(bench.copies[name], metadata=replace(meta, annotations=notes))).show(name)

    with writing_bench(node("a", cpu="8"), gang("waits", 2), gang("runs", 2)) as bench:
        fill("waits")
        bench.start("runs")
        assert len(bench.settle().look()) == 2
        fill("runs")
        bench.finish("runs-0", "runs-1")
        bench.advance(RETRY_SECONDS)
        (patch,) = bench.settle().look()
        assert (patch["status"]["phase"], "annotations" in patch["metadata"]) == ("Completed", False)
        assert status_of({"status": msgspec.to_builtins(bench.copies["waits"].status)}) == (
            "Pending",
            {SCHEDULED: ("False", "InvalidSpec")},
        )
        bench.advance(RETRY_SECONDS)
        assert bench.settle().look() == []


# ---- groups of other kinds


def test_a_group_with_a_status_of_others_has_records_in_annotations() -> None:
    meta = Meta(name="g", namespace=NAMESPACE, uid="other")
    theirs = PluginsPodGroup(meta, PodGroupSpec(2))
    members = [builders.pod(name, "g") for name in names("g", 2)]

    def recorded(notes: dict[str, str | None]) -> list[Any]:
        """Return the notes written since the last call; from then on, the API has `notes`."""
        assert bench.look() == []
        written, bench.api.calls = bench.api.done("note on group"), []
        written_notes = {name: value for name, value in notes.items() if value}
        bench.add(replace(theirs, metadata=replace(meta, annotations=written_notes)))
        return written

    with writing_bench(node("a"), theirs, members) as bench:
        admitted, whole = admitted_record("other", True), whole_record("other", 2)
        assert recorded(admitted) == [("g", (PLUGINS_POD_GROUPS, admitted))]
        bench.start("g")
        assert recorded({**whole}) == [
            ("g", (PLUGINS_POD_GROUPS, {**whole, **admitted_record("other", False)}))
        ]
        bench.settle()
        assert recorded({**whole}) == []


def test_a_native_group_has_the_reason_of_its_wait_until_it_is_scheduled() -> None:
    """Keep Scheduled, which the native API never takes back, and messages of its scheduler."""
    meta = Meta(name="g", namespace=NAMESPACE, uid="other")
    theirs = NativePodGroup(meta, NativePodGroupSpec(SchedulingPolicy(GangPolicy(2))))
    members = [builders.pod(name, "g") for name in names("g", 2)]
    conditions: dict[str, Any] = {}

    def reported() -> list[tuple[str, str, bool]]:
        """Return status and reason, message, and whether it is dated, of each write since the last call."""
        bench.look()
        written, bench.api.calls = bench.api.done("group condition"), []
        for _, condition in written:
            conditions.update(condition)
            status = NativePodGroupStatus([msgspec.convert(conditions, Condition)])
            bench.add(replace(theirs, status=status))
        return [
            (f"{each['status']} {each['reason']}", each["message"], "lastTransitionTime" in each)
            for _, each in written
        ]

    with writing_bench(node("a", cpu="1"), theirs, members[:1]) as bench:
        few, nowhere = (f"{why}: {why.meaning}" for why in (Reason.NOT_ENOUGH_MEMBERS, Reason.NEVER_FITS))
        assert reported() == [("False Unschedulable", few, True)]
        bench.add(members).settle()
        assert reported() == [("False Unschedulable", nowhere, False)]
        bench.settle()
        assert reported() == []
        bench.add(node("a", cpu="2")).settle()
        assert reported() == []
        bench.start("g")
        assert reported() == [("True Scheduled", "", True)]
        bench.delete(*names("g", 2)).settle()
        assert reported() == []


def conditions_written(bench: PodGroupBench) -> dict[str, tuple[str, str]]:
    """Return the conditions of one look by object: their type and status, and their message."""
    bench.look()
    return {
        name: (f"{each['type']} {each['status']}", each["message"])
        for name, each in bench.api.done("group condition")
    }


def test_a_composite_and_each_group_below_it_have_the_condition() -> None:
    of_composite, of_group = "CompositePodGroupInitiallyScheduled", "PodGroupInitiallyScheduled"
    parts = composite("c", 1), composite("x", 2, "c"), pod_group("a", parent="x"), pod_group("b", parent="x")
    with writing_bench(node("n", cpu="3"), *parts, pod_group("d", 3, 3)) as bench:
        why = f"NeverFits: {Reason.NEVER_FITS.meaning}"
        bench.add(node("n", cpu="2")).settle()
        assert conditions_written(bench) == {
            **dict.fromkeys("cx", (f"{of_composite} False", why)),
            **dict.fromkeys("abd", (f"{of_group} False", why)),
        }
        bench.add(node("n", cpu="4")).start("compositepodgroup/c")
        started = {name for name, (status, _) in conditions_written(bench).items() if status.endswith("True")}
        assert started == {"c", "d"}
        bench.add(node("n", cpu="8")).settle()
        bench.scheduler_takes(*bench.plan("compositepodgroup/c")).settle()
        started = {name for name, (status, _) in conditions_written(bench).items() if status.endswith("True")}
        assert started >= {"x", "a", "b"}


def test_the_condition_of_an_invalid_tree_has_the_cause() -> None:
    with writing_bench(
        composite("c", 1, "c"), pod_group("a", parent="c"), pod_group("b", parent="x")
    ) as bench:
        circle = "InvalidSpec: CompositePodGroup c is below itself"
        lost = "InvalidSpec: CompositePodGroup x, the parent of PodGroup b, does not exist"
        assert {name: message for name, (_, message) in conditions_written(bench).items()} == {
            "c": circle,
            "a": circle,
            "b": lost,
        }


def test_the_condition_of_an_alpha_group_is_left_alone() -> None:
    theirs = AlphaPodGroup(Meta(name="g", namespace=NAMESPACE, uid="other"))
    with writing_bench(node("a", cpu="100m"), theirs, builders.pod("g-0", "g")) as bench:
        bench.look()
        assert bench.api.done("group condition") == []


# ---- many groups


def test_writes_of_numbers_share_a_budget_and_each_group_has_them_in_the_end() -> None:
    with writing_bench(*crowd(100)) as bench:
        bench.look()
        written = list[str]()
        for second in range(60):
            requeue_changed(bench, second)
            bench.look()
            written += [name for name, _ in bench.api.done("patch")]
            bench.api.calls.clear()
        assert 100 <= len(written) <= NUMBERS_AT_ONCE + 60 * NUMBERS_A_SECOND
        assert len({*written}) == 100


def test_the_first_positions_in_a_queue_are_written_before_other_numbers() -> None:
    """The numbers of 60 groups are waiting to be written when the first one leaves the line."""
    with writing_bench(*crowd(60)) as bench:
        bench.look()
        for _ in range(60):
            bench.advance(1.0)
            bench.look()
        for second in range(2):
            requeue_changed(bench, second)
            bench.look()
        leader = next(name for name in bench.copies if bench.decision(name).position == 1)
        bench.delete(*names(leader, 4)).settle()
        bench.advance(6.0)
        positions: list[int] = []
        for _ in range(20):
            bench.look()
            positions += [
                bench.decision(name).position for name, _ in bench.api.done("patch") if name != leader
            ]
            bench.advance(1.0)
        assert sorted(positions[:9]) == [1, 2, 3, 4, 5, 6, 7, 8, 9], positions


def test_the_first_positions_are_true_while_the_lines_of_many_queues_move() -> None:
    """A group leaves one of eight lines each second; six seconds later all first positions are written."""
    lines = [f"q{n}" for n in range(8)]
    gangs = [gang(f"{line}-{n}", 4, queue=line) for line in lines for n in range(16)]
    with writing_bench(
        node("a", cpu="4"), *map(queue, lines), *gangs, foreign_pod("s", on="a", cpu="1")
    ) as bench:

        def places() -> dict[str, int]:
            decisions = bench.decisions.groups.values()
            return {each.key.partition("/")[2]: each.position for each in decisions if 0 < each.position <= 9}

        for second in range(96):
            if 50 <= second < 90:
                line = lines[second % 8]
                first = next(name for name, place in places().items() if place == 1 and name.startswith(line))
                bench.delete(*names(first, 4)).settle()
            bench.advance(1.0)
            bench.look()
        assert len(places()) == 72
        statuses = {name: bench.copies[name].status.waiting for name in places()}
        assert {name: waiting and waiting.position for name, waiting in statuses.items()} == places()


def test_a_phase_never_waits_behind_numbers() -> None:
    with writing_bench(*crowd(50)) as bench:
        bench.look()
        for second in range(20):
            requeue_changed(bench, second)
            bench.look()
        bench.add(node("b", cpu="4")).settle()
        starting = [name for name, copy in bench.copies.items() if bench.verdict(name) is Verdict.STARTING]
        assert starting
        bench.look()
        assert [bench.copies[name].status.phase for name in starting] == ["Inqueue"] * len(starting)
        bench.start(*starting)
        bench.look()
        for name in starting:
            patch_of = {condition.type for condition in bench.copies[name].status.conditions or ()}
            assert STOOD_WHOLE in patch_of


class Counted(ObjectStore[GroupKey, PodGroup]):
    looked_at = 0

    def get(self, key: GroupKey) -> PodGroup | None:
        self.looked_at += 1
        return super().get(key)


def test_a_group_that_waits_for_the_budget_is_not_compared_again() -> None:
    with writing_bench(*crowd(50)) as bench:
        counted = Counted()
        bench.reporter, bench.store = (
            PodGroupStatusController(
                bench.means(), counted, ProvisioningRequests(), StartChanges(), bench.estimates
            ),
            counted,
        )
        for name in bench.copies:
            bench.show(name)
        bench.look()
        for second in range(5):
            requeue_changed(bench, second)
            bench.look()
        counted.looked_at = 0
        for second in range(5, 10):
            requeue_changed(bench, second)
            bench.look()
        assert counted.looked_at <= 5 * 4 * NUMBERS_A_SECOND  # due, written, shown, compared; not 250


def test_a_follower_remembers_no_groups() -> None:
    with writing_bench(node("a")) as bench:
        bench.leading = False
        for number in range(50):
            bench.add(gang(f"g{number}", 5)).settle()
            bench.show(f"g{number}")
            bench.look()
        assert bench.reporter.waiting_count == 0
        bench.leading = True
        assert len(bench.look()) == 50


def test_a_group_that_makes_it_raise_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(group: PodGroup) -> ReportedStatus:
        if group.metadata.name == "bad":
            raise RuntimeError("ouch")
        return reported_status(group)

    monkeypatch.setattr(podgroup_status, "reported_status", poisoned)
    with writing_bench(node("a"), gang("bad", 5), gang("good", 5)) as bench:
        assert len(bench.look()) == 1
        assert bench.copies["good"].status.phase == "Pending"
        monkeypatch.setattr(podgroup_status, "reported_status", reported_status)
        bench.advance(1.0)
        assert len(bench.look()) == 1
        assert bench.copies["bad"].status.phase == "Pending"
