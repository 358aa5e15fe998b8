"""How the pods of Jobs ended: each counts once, and still does when it is gone."""

from collections import defaultdict
from typing import NamedTuple

from extender.sim.apiserver.kinds import JOBS, PODS, Json
from extender.sim.apiserver.store import Change, Store
from extender.sim.controllers.offspring import has_ended, owner_uid

INDEX = "batch.kubernetes.io/job-completion-index"


class Ending(NamedTuple):
    """`completion_index`: which of an indexed Job's pods it was."""

    succeeded: bool
    completion_index: int


class JobEndings:
    """A pod that somebody deletes counts as one that failed, as in a real cluster; one that its controller
    has withdrawn does not count."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_job = defaultdict[str, dict[str, Ending]](dict)  # by UID, each by the UID of the pod
        self._withdrawn = set[str]()

    def see(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        if change.kind is JOBS and change.type == "DELETED":
            self._by_job.pop(uid, None)
        elif change.kind is PODS and (
            change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]
        ):
            self._note(change.object)
        if change.type == "DELETED":
            self._withdrawn.discard(uid)

    def of(self, job: Json, owned: list[Json]) -> list[Ending]:
        """`owned`: its pods that are there."""
        for pod in filter(has_ended, owned):
            self._note(pod)
        return list(self._by_job.get(job["metadata"]["uid"], {}).values())

    def withdraw(self, obj: Json) -> None:
        """Its controller deletes it."""
        self._withdrawn.add(obj["metadata"]["uid"])

    def _note(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._withdrawn and self._is_of_job(pod):
            ending = Ending(pod["status"].get("phase") == "Succeeded", index_of(pod))
            self._by_job[owner_uid(pod)].setdefault(uid, ending)

    def _is_of_job(self, pod: Json) -> bool:
        """Of one that is there: what is left of others goes with them."""
        owners = pod["metadata"].get("ownerReferences") or ()
        names = (each["name"] for each in owners if each.get("controller") and each["kind"] == JOBS.name)
        found = (self._store.get(JOBS, pod["metadata"]["namespace"], name) for name in names)
        return any(job is not None and job["metadata"]["uid"] == owner_uid(pod) for job in found)


def index_of(pod: Json) -> int:
    """0 where it has none."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else 0
