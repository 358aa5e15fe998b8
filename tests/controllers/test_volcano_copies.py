"""Copies of a Volcano Job's pods, whether the watch or the answer to a write comes first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.volcano import VolcanoJob
from extender.controllers.volcano_copies import LostPod, VolcanoCopies, as_json
from extender.domain.model.records import Uid
from extender.domain.snapshot.jobs import AnyJob
from extender.kube.reflector import Removed
from tests.rows import each_of

JOB = Uid("uid-of-job")


class RecordingCopies(VolcanoCopies):
    """Copies with their own clock and a record of all notifications."""

    def __init__(self) -> None:
        self.now = 0.0
        self.changes: list[Uid] = []
        self.losses: list[LostPod] = []
        super().__init__(self.changes.append, self.losses.append, lambda: self.now)

    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.pods_of(JOB))

    def reserved(self) -> int:
        return len(self._pods)


def pod(name: str, uid: str = "", owner: str = JOB, phase: str = "Pending", namespace: str = "ns") -> AnyJob:
    notes = {"volcano.sh/task-spec": "work", "volcano.sh/task-index": "0", "volcano.sh/job-version": "0"}
    made_by = OwnerReference("batch.volcano.sh/v1alpha1", "Job", "job", owner, controller=True)
    meta = Meta(name, namespace, uid or f"uid-{name}", annotations=notes, owner_references=[made_by])
    return AnyJob(meta, status={"phase": phase})


def answer(name: str, uid: str = "") -> dict[str, Any]:
    new_pod = pod(name, uid)
    return as_json(new_pod.metadata, new_pod.spec, new_pod.status)


def removed(name: str) -> Removed:
    return Removed("ns", name, f"uid-{name}")


def test_a_pod_that_was_created_counts_before_the_watch_shows_it() -> None:
    copies = RecordingCopies()
    assert copies.begin_creation(JOB, "a")
    assert not copies.begin_creation(JOB, "a")  # its answer is on the way
    copies.end_creation(JOB, "a", answer("a"))
    assert copies.names() == ["a"]
    copies.upsert(pod("a", phase="Running"))
    assert [found.phase for found in copies.pods_of(JOB)] == ["Running"]


def test_the_watch_may_be_faster_than_the_answer() -> None:
    copies = RecordingCopies()
    copies.begin_creation(JOB, "a")
    copies.upsert(pod("a"))
    copies.end_creation(JOB, "a", answer("a"))
    assert copies.names() == ["a"]
    copies.begin_creation(JOB, "b")
    copies.upsert(pod("b"))
    copies.remove(removed("b"))
    copies.end_creation(JOB, "b", answer("b"))
    assert copies.names() == ["a"]


def test_a_failed_creation_may_be_retried() -> None:
    copies = RecordingCopies()
    copies.begin_creation(JOB, "a")
    copies.end_creation(JOB, "a", None)
    assert copies.names() == []
    assert copies.begin_creation(JOB, "a")


def test_a_created_pod_that_no_watch_shows_is_forgotten() -> None:
    copies = RecordingCopies()
    copies.begin_creation(JOB, "a")
    copies.end_creation(JOB, "a", answer("a"))
    copies.now = 61.0
    assert copies.names() == []


def test_a_pod_that_muster_deletes_is_no_loss_and_counts_as_being_deleted() -> None:
    copies = RecordingCopies()
    copies.upsert(pod("a"))
    copies.upsert(pod("b"))
    (first, _) = sorted(copies.pods_of(JOB), key=lambda each: each.name)
    copies.record_deletion(JOB, first)
    assert {each.name: each.is_deleting for each in copies.pods_of(JOB)} == {"a": True, "b": False}
    copies.remove(removed("a"))
    assert copies.losses == []
    copies.remove(removed("b"))
    assert [lost.pod.name for lost in copies.losses] == ["b"]


def test_a_pod_whose_deletion_was_refused_is_a_loss_if_it_disappears() -> None:
    copies = RecordingCopies()
    copies.upsert(pod("a"))
    (found,) = copies.pods_of(JOB)
    copies.record_deletion(JOB, found)
    copies.record_deletion(JOB, found, has_succeeded=False)
    assert not copies.pods_of(JOB)[0].is_deleting
    copies.remove(removed("a"))
    assert copies.losses == [LostPod(JOB, found)]


def test_pods_are_identified_by_the_uid_of_their_owner() -> None:
    copies = RecordingCopies()
    copies.upsert(pod("a", owner="another"))
    copies.upsert(AnyJob(Meta("b", "ns", "uid-b")))
    assert copies.names() == []


@each_of("", "another")
def test_a_pod_without_the_owner_reference_does_not_belong_to_the_job(owner: str) -> None:
    copies = RecordingCopies()
    copies.upsert(pod("a"))
    released = pod("a", owner=owner)
    copies.upsert(released if owner else AnyJob(Meta("a", "ns", "uid-a"), status=released.status))
    assert copies.names() == []
    assert [lost.pod.name for lost in copies.losses] == ["a"]
    copies.remove(removed("a"))
    assert copies.reserved() == 0


@each_of(("job-work-0", "elsewhere"), ("job-work-1", "ns"), ("other-work-0", "ns"))
def test_pods_in_another_namespace_or_with_another_name_do_not_belong_to_the_job(
    name: str, namespace: str
) -> None:
    copies = RecordingCopies()
    copies.upsert(pod(name, uid="forged", phase="Succeeded", namespace=namespace))
    copies.put(VolcanoJob(Meta("job", "ns", JOB)))
    copies.upsert(pod("job-work-0"))
    assert [found.uid for found in copies.pods_of(JOB)] == ["uid-job-work-0"]
    copies.remove(Removed(namespace, name, "forged"))
    assert copies.losses == []


def test_an_answer_replaces_its_base_copy_and_no_newer_one() -> None:
    copies, old, new, late = (
        RecordingCopies(),
        *(VolcanoJob(Meta("j", uid=JOB, resource_version=n)) for n in "123"),
    )
    copies.put(old)
    copies.record_write(old, new)
    assert copies.get(JOB) is new
    copies.record_write(old, late)
    assert copies.get(JOB) is new


STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "end", "refuse", "show", "go", "delete"]), st.sampled_from("ab")),
    max_size=40,
)


@pytest.mark.parametrize("leads", [True, False])
@given(steps=STEPS)
def test_in_any_order_the_last_watch_event_counts_and_no_entry_stays_for_ever(
    leads: bool, steps: list[tuple[str, str]]
) -> None:
    copies, shown, in_flight = RecordingCopies(), set[str](), set[str]()
    for step, name in steps:
        _take(copies, step, name, shown, in_flight)
        assert shown <= {*copies.names()} <= {"a", "b"}
        assert len(copies.names()) == len({*copies.names()})
    for name in in_flight:
        copies.end_creation(JOB, name, None)
    if not leads:
        copies.forget_writes()
    copies.now += 61.0
    assert copies.names() == sorted(shown)
    for name in shown:
        copies.remove(removed(name))
    assert copies.names() == []
    assert copies.reserved() == 0


def _take(copies: RecordingCopies, step: str, name: str, shown: set[str], in_flight: set[str]) -> None:
    if step == "begin" and copies.begin_creation(JOB, name):
        in_flight.add(name)
    elif step in ("end", "refuse") and name in in_flight:
        in_flight.discard(name)
        copies.end_creation(JOB, name, answer(name) if step == "end" else None)
    elif step == "show":
        shown.add(name)
        copies.upsert(pod(name))
    elif step == "go" and name in shown:
        shown.discard(name)
        copies.remove(removed(name))
    elif step == "delete":
        for found in copies.pods_of(JOB):
            if found.name == name:
                copies.record_deletion(JOB, found)
