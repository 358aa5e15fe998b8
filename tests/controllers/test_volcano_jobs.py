"""Controller of Volcano Jobs over a minimal API server, in virtual time.

Writes, their frequency, and the outcome for a job whose Muster is killed before any of these writes.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from extender.api.keys import LAST_COMMAND, STARTED
from extender.api.objects.base import Meta, OwnerReference, merged
from extender.api.objects.queues import Command
from extender.api.objects.volcano import VolcanoJob
from extender.api.workloads.shape import VOLCANO_JOB
from extender.controllers.events import EventRecorder
from extender.controllers.objects import ObjectStore
from extender.controllers.volcano_commands import VolcanoCommandsController
from extender.controllers.volcano_jobs import VolcanoJobsController
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.jobs import AnyJob, JobKind
from extender.kube.errors import ApiError, Conflict, Forbidden, NotFound, Refused
from extender.kube.reflector import Removed
from extender.kube.resources import Resource
from extender.volcano.plugins import build_with_plugins
from tests.controllers.api import Api
from tests.controllers.bench import Bench
from tests.domain.builders import SCHEDULER, queue

Json = dict[str, Any]
CYCLES = 30
FOR_EVER = 1_000_000  # writes


class VolcanoApi(Api):
    """API server with one Volcano Job, pods, and other created objects."""

    def __init__(self) -> None:
        super().__init__()
        self.volcano_job: Json = {}
        self.objects: dict[str, Json] = {}  # by name
        self.version = 0
        self.refused: set[str] = set()  # names of pods
        self.refusal: ApiError = Forbidden(403, "Forbidden", "exceeded quota")
        self.claims: dict[str, set[str]] = {}  # by name, their owners
        self.secrets: list[str] = []
        self.writes_left = FOR_EVER

    def _record(self, verb: str, name: str, *more: Any) -> None:
        if self.writes_left == 0:
            raise ApiError("the process that asks is dead")
        self.writes_left -= verb != "event"
        super()._record(verb, name, *more)

    def submit(self, *tasks: Json, **spec: Any) -> None:
        meta = {"name": "job", "namespace": "ns", "uid": "uid-job", "annotations": {STARTED: "now"}}
        self.volcano_job = {"metadata": meta, "spec": {"tasks": list(tasks), **spec}, "status": {}}
        self.turn()

    def turn(self) -> None:
        self.version += 1
        self.volcano_job["metadata"]["resourceVersion"] = str(self.version)

    def copy(self) -> VolcanoJob:
        return msgspec.convert(self.volcano_job, VolcanoJob)

    def create_owned(self, kind: Resource, namespace: str, obj: Json, owner: str) -> Json:
        name = obj["metadata"]["name"]
        self._record(f"create {kind.plural}", name)
        if name in self.refused:
            raise self.refusal
        if (found := self.objects.get(name)) is not None:
            if all(each["uid"] != owner for each in found["metadata"].get("ownerReferences", ())):
                raise Conflict(409, "AlreadyExists")
            return found
        self.version += 1
        meta = {**obj["metadata"], "uid": f"uid-{self.version}", "resourceVersion": str(self.version)}
        self.objects[name] = {**obj, "metadata": meta, "status": {"phase": "Pending"}}
        return self.objects[name]

    def delete_pod(self, namespace: str, name: str, uid: str, max_grace: float | None = None) -> None:
        self._record("delete", name)
        if name not in self.objects:
            raise NotFound(404, "NotFound")
        del self.objects[name]

    def patch_volcano_job_status(self, namespace: str, name: str, patch: Json) -> VolcanoJob:
        self._record("status", name, patch["status"])
        self._patch_job(patch)
        return self.copy()

    def merge_job(self, kind: Resource, namespace: str, name: str, patch: Json, timeout: float = 10) -> None:
        self._record("merge job", name, patch)
        if name == "job":
            self._patch_job(patch)
        else:
            self.objects[name] = merged(self.objects[name], {**patch, "metadata": {}})

    def _patch_job(self, patch: Json) -> None:
        if patch["metadata"]["resourceVersion"] != self.volcano_job["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict")
        self.volcano_job = merged(self.volcano_job, patch)
        self.turn()

    def claim_owners(self, namespace: str, name: str) -> set[str]:
        self._record("look up claim", name)
        if name not in self.claims:
            raise NotFound(404, "NotFound")
        return self.claims[name]

    def create_secret(self, namespace: str, secret: Json) -> None:
        self._record("create secrets", secret["metadata"]["name"])
        self.secrets.append(secret["metadata"]["name"])

    def delete_volcano_job(self, namespace: str, name: str, uid: str) -> None:
        self._record("delete job", name)

    def delete_command(self, namespace: str, name: str, uid: str) -> None:
        self._record("delete command", name)
        self.objects.pop(name, None)


def task(name: str, replicas: int, **more: Any) -> Json:
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": [{"name": "c"}]}}, **more}


RESTARTS = {"event": "PodFailed", "action": "RestartJob"}


class VolcanoBench(Bench):
    """Bench whose watch shows the objects when `watch` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.api: VolcanoApi = VolcanoApi()
        self.recorder = EventRecorder(self.api, self.writers, self.leads, clock=lambda: self.now)
        self.left = False
        self.born()

    def born(self) -> None:
        """Start a new process, which knows nothing."""
        self.api.writes_left = FOR_EVER
        self.controller = VolcanoJobsController(
            self.means(), self.recorder, ObjectStore(), lambda: self.left, lambda: self.now
        )
        self.commander = VolcanoCommandsController(
            self.means(), self.recorder, self.controller.copies, lambda: self.left
        )
        self._seen: dict[str, tuple[str, str]] = {}

    def watch(self) -> None:
        for name, (uid, _) in list(self._seen.items()):
            if self.api.objects.get(name, {}).get("metadata", {}).get("uid") != uid:
                del self._seen[name]
                self.controller.copies.remove(Removed("ns", name, uid))
        for name, obj in self.api.objects.items():
            seen = obj["metadata"]["uid"], str(obj["status"])
            if obj.get("kind") == "Pod" and self._seen.get(name) != seen:
                self._seen[name] = seen
                meta = msgspec.convert(obj["metadata"], Meta)
                self.controller.copies.upsert(AnyJob(meta, obj["spec"], obj["status"]))
        self.controller.on_job(self.api.copy())

    def work(self, cycles: int = CYCLES, shows: bool = True) -> None:
        for _ in range(cycles):
            if shows:
                self.watch()
            self.controller.on_decisions(self.decisions)
            self.commander.on_decisions(self.decisions)
            self.flush()
            self.advance(1.0)

    def there(self) -> dict[str, Json]:
        return {name: obj for name, obj in self.api.objects.items() if obj.get("kind") == "Pod"}

    def set_phase(self, phase: str, *names: str) -> None:
        for name in names or self.there():
            ended = phase in ("Succeeded", "Failed")
            state = {"terminated": {"exitCode": int(phase == "Failed")}} if ended else {"running": {}}
            containers = [{"name": "c", "ready": not ended, "state": state}]
            self.api.objects[name]["status"] = {"phase": phase, "containerStatuses": containers}

    @property
    def phase(self) -> str:
        return self.api.copy().status.state.phase

    def killed_after(self, writes: int) -> None:
        """Stop all writes after `writes` further ones."""
        self.api.writes_left = writes


@pytest.fixture
def bench() -> Iterator[VolcanoBench]:
    new_bench = VolcanoBench()
    with new_bench.writing():
        yield new_bench


def test_a_job_of_ten_pods_costs_a_few_further_writes(bench: VolcanoBench) -> None:
    """Count the writes, with those of a queued job's PodGroup, its phases, and the note of admission."""
    bench.api.submit(task("a", 10))
    bench.work()
    for index in range(10):  # they come up one by one
        bench.set_phase("Running", f"job-a-{index}")
        bench.work(1)
    bench.work()
    assert bench.phase == "Running"
    bench.set_phase("Succeeded")
    bench.work()
    assert bench.phase == "Completed"
    call_counts = Counter(call[0] for call in bench.api.calls if call[0] != "event")
    assert call_counts.pop("create pods") == 10
    call_counts.pop("create group", None)
    assert sum(call_counts.values()) <= 7, call_counts


def test_a_late_watch_causes_no_second_creation(bench: VolcanoBench) -> None:
    bench.api.submit(task("a", 3))
    bench.watch()
    for _ in range(5):
        bench.controller.on_decisions(bench.decisions)
        bench.flush()
        bench.controller.on_job(bench.api.copy())
        bench.advance(1.0)
    assert len(bench.api.done("create pods")) == 3


def test_nothing_is_written_while_volcano_runs(bench: VolcanoBench) -> None:
    bench.left = True
    bench.api.submit(task("a", 3))
    bench.work(3)
    assert bench.api.calls == []
    bench.left = False
    bench.work(3)
    assert len(bench.there()) == 3
    bench.left = True
    bench.set_phase("Succeeded")
    bench.work(3)
    assert bench.phase == "Pending"


@pytest.mark.parametrize("writes", range(14))
def test_a_kill_before_any_write_of_a_restart_loses_and_doubles_nothing(
    bench: VolcanoBench, writes: int
) -> None:
    bench.api.submit(task("a", 3), maxRetry=3, policies=[RESTARTS])
    bench.work()
    bench.set_phase("Running")
    bench.work()
    before = {name: pod["metadata"]["uid"] for name, pod in bench.there().items()}
    bench.set_phase("Failed", "job-a-1")
    bench.killed_after(writes)
    bench.work(6)
    bench.born()
    bench.work()
    bench.set_phase("Running")
    bench.work()
    status = bench.api.copy().status
    assert (status.state.phase, status.retry_count, status.running) == ("Running", 1, 3)
    after = {name: pod["metadata"]["uid"] for name, pod in bench.there().items()}
    assert after.keys() == before.keys()
    assert not {*after.values()} & {*before.values()}


@pytest.mark.parametrize("writes", range(10))
def test_a_kill_before_any_write_of_a_command_executes_it_once(bench: VolcanoBench, writes: int) -> None:
    bench.api.submit(task("a", 2), maxRetry=3)
    bench.work()
    bench.set_phase("Running")
    bench.work()
    bench.api.objects["command"] = {"metadata": {"uid": "uid-command"}, "status": {}}
    bench.commander.upsert(command("RestartJob"))
    bench.killed_after(writes)
    bench.work(6)
    bench.born()
    if "command" in bench.api.objects:
        bench.commander.upsert(command("RestartJob"))
    bench.work()
    assert "command" not in bench.api.objects
    assert bench.api.copy().status.retry_count == 1
    recorded = (bench.api.copy().metadata.annotations or {})[LAST_COMMAND]
    assert recorded == "uid-command/RestartJob/0"


def command(action: str, uid: str = "uid-job", namespace: str = "ns") -> Command:
    target = OwnerReference("batch.volcano.sh/v1alpha1", "Job", "job", uid)
    return Command(Meta("command", namespace, "uid-command"), action, target)


@pytest.mark.parametrize("target", [("uid-of-another", "ns"), ("uid-job", "namespace-of-another")])
def test_a_command_for_a_job_that_is_gone_or_elsewhere_does_nothing(
    bench: VolcanoBench, target: tuple[str, str]
) -> None:
    bench.api.submit(task("a", 1))
    bench.work(2)
    bench.commander.upsert(command("RestartJob", *target))
    bench.work(3)
    assert bench.api.done("delete command")[0] == ("command",)
    assert bench.api.copy().status.retry_count == 0


@pytest.mark.parametrize(
    "refusal", [Forbidden(403, "Forbidden", "exceeded quota"), Refused(400, "BadRequest", "no such pod")]
)
def test_a_refused_write_is_retried_with_growing_pauses(bench: VolcanoBench, refusal: ApiError) -> None:
    bench.api.refusal = refusal
    bench.api.submit(task("a", 2))
    bench.api.refused = {"job-a-0", "job-a-1"}
    bench.work(60)
    assert len(bench.api.done("create pods")) <= 20
    assert [event for *_, event in bench.api.done("event") if event["reason"] == "FailedCreate"]
    bench.api.refused = set()
    bench.work(60)
    assert len(bench.there()) == 2


def test_a_pod_is_built_only_when_it_is_sent(bench: VolcanoBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build pods late: in a large job each of them may name all the others."""
    built: list[Json] = []

    def recorded(*which: Any) -> Json:
        built.append(build_with_plugins(*which))
        return built[-1]

    monkeypatch.setattr("extender.volcano.plan.build_with_plugins", recorded)
    bench.api.submit(task("a", 9))
    bench.api.refused = {"job-a-8"}
    bench.work()
    assert [pod["metadata"]["name"] for pod in built] == [name for (name,) in bench.api.done("create pods")]


def test_a_pod_of_another_is_left_alone_and_its_name_used_once_it_is_free(bench: VolcanoBench) -> None:
    bench.api.submit(task("a", 2))
    bench.api.objects["job-a-0"] = {"metadata": {"uid": "foreign"}, "status": {}}
    bench.work(40)
    assert bench.there().keys() == {"job-a-1"}
    assert bench.api.objects["job-a-0"]["metadata"]["uid"] == "foreign"
    assert [event for *_, event in bench.api.done("event") if event["reason"] == "PodNameTaken"]
    del bench.api.objects["job-a-0"]
    bench.work(40, shows=False)  # no watch reports a pod that does not belong to a job
    assert bench.there().keys() == {"job-a-0", "job-a-1"}


def test_of_thousands_of_taken_names_a_few_are_tried(bench: VolcanoBench) -> None:
    bench.api.submit(task("a", 3000), minAvailable=1)
    for number in range(3000):
        bench.api.objects[f"job-a-{number}"] = {"metadata": {"uid": f"foreign-{number}"}, "status": {}}
    bench.work(40)
    assert 100 <= len(bench.api.done("create pods")) <= 600


def creations(bench: VolcanoBench) -> list[str]:
    """Return the created objects, in order, pods as one."""
    created = [call[0].removeprefix("create ") for call in bench.api.calls if call[0].startswith("create ")]
    return list(dict.fromkeys(each for each in created if each != "group"))


@pytest.mark.parametrize(
    ("spec", "before"),
    [
        ({"plugins": {"svc": []}}, ["services", "configmaps", "networkpolicies"]),
        ({"plugins": {"ssh": []}}, ["secrets"]),
        (
            {"volumes": [{"mountPath": "/data", "volumeClaim": {"accessModes": []}}]},
            ["persistentvolumeclaims"],
        ),
        ({}, []),
    ],
)
def test_objects_of_plugins_and_volumes_exist_before_any_pod(
    bench: VolcanoBench, spec: Json, before: list[str]
) -> None:
    bench.api.submit(task("a", 2), **spec)
    bench.work()
    assert creations(bench) == [*before, "pods"]


def test_the_secret_of_a_job_cannot_be_made_by_others(bench: VolcanoBench) -> None:
    """Its name is in the status before any pod has it, and stays, also after a restart of Muster."""
    bench.api.submit(task("a", 1), plugins={"ssh": []})
    bench.work()
    (secret,) = bench.api.secrets
    assert re.fullmatch("job-ssh-[0-9a-f]{16}", secret)
    assert bench.api.volcano_job["status"]["controlledResources"] == {"plugin-ssh": secret}
    bench.born()
    bench.api.volcano_job["spec"]["tasks"] = [task("a", 2)]
    bench.api.turn()
    bench.work()
    assert bench.api.secrets == [secret]
    pods = [each for each in bench.api.objects.values() if each["kind"] == "Pod"]
    mounted = [volume["secret"]["secretName"] for pod in pods for volume in pod["spec"]["volumes"]]
    assert mounted == [secret, secret]


def test_lists_of_hosts_follow_a_job_that_grows_and_shrinks(bench: VolcanoBench) -> None:
    bench.api.submit(task("a", 2), plugins={"svc": []}, minAvailable=1)
    bench.work()
    for replicas in (3, 1):
        bench.api.volcano_job["spec"]["tasks"] = [task("a", replicas)]
        bench.api.turn()
        bench.work()
        (*_, (_, patch)) = [call for call in bench.api.done("merge job") if call[0] == "job-svc"]
        assert patch["data"]["VC_A_NUM"] == str(replicas)


def test_pods_wait_for_a_claim_that_is_named_and_missing(bench: VolcanoBench) -> None:
    bench.api.submit(task("a", 1), volumes=[{"mountPath": "/data", "volumeClaimName": "shared"}])
    bench.work()
    assert creations(bench) == []
    assert [event for *_, event in bench.api.done("event") if event["reason"] == "PVCError"]
    bench.api.claims["shared"] = set()
    bench.work(shows=False)
    assert creations(bench) == ["pods"]


CLAIMED_VOLUME = {"volumes": [{"mountPath": "/data", "volumeClaimName": "shared"}]}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (CLAIMED_VOLUME, "there is no claim shared for its volume /data"),
        ({"plugins": {"svc": []}}, "exceeded quota"),  # the Service is refused
        ({}, "pod job-a-0 is there, and not its own"),
    ],
)
def test_a_job_whose_pods_lack_an_object_returns_its_capacity_to_the_queue(
    bench: VolcanoBench, spec: Json, why: str
) -> None:
    bench.ledger.intake.set_queue(queue("q"))
    bench.api.refused.add("job")
    bench.api.objects["job-a-0"] = {"metadata": {"uid": "foreign"}, "status": {}}
    bench.api.submit(
        {**task("a", 1), "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        queue="q",
        schedulerName=SCHEDULER,
        **spec,
    )
    bench.ledger.intake.leave_jobs(())
    obj = msgspec.convert(bench.api.volcano_job, AnyJob)
    bench.ledger.intake.set_job(JobKind(*VOLCANO_JOB), obj)
    bench.settle()
    bench.work()
    managed = bench.ledger.managed_job(GroupKey("ns/job-uid-job"))
    assert managed is not None
    assert managed.has_failed(bench.now)
    assert managed.failure.endswith(f": {why}")


def test_of_hundreds_of_missing_volume_claims_a_few_are_looked_up(bench: VolcanoBench) -> None:
    volumes = [{"mountPath": f"/{each}", "volumeClaimName": f"claim-{each}"} for each in range(200)]
    bench.api.claims["claim-1"] = set()
    bench.api.submit(task("a", 1), volumes=volumes)
    bench.work(12)
    assert len(bench.api.done("look up claim")) <= 12
    (reported,) = {event["message"] for *_, event in bench.api.done("event") if event["reason"] == "PVCError"}
    assert [f"claim-{each} " in reported for each in range(5)] == [True, False, True, True, False]
    looked_up = len(bench.api.done("look up claim"))
    bench.api.volcano_job["status"]["state"] = {"phase": "Completed"}
    bench.api.turn()
    bench.work(12)
    assert len(bench.api.done("look up claim")) == looked_up


def test_a_pod_that_disappears_repeatedly_is_one_loss(bench: VolcanoBench) -> None:
    """Restart the job once, however often the pod goes before its policy is due."""
    policies = [{"event": "PodEvicted", "action": "RestartJob", "timeout": "1m"}]
    bench.api.submit(task("a", 2), minAvailable=1, policies=policies)
    bench.work()
    bench.set_phase("Running")
    for _ in range(5):
        bench.work(3)
        del bench.api.objects["job-a-0"]
    bench.work(90)
    assert bench.api.copy().status.retry_count == 1


def test_a_pod_that_is_back_in_time_is_no_loss(bench: VolcanoBench) -> None:
    policies = [{"event": "PodEvicted", "action": "RestartJob", "timeout": "1m"}]
    bench.api.submit(task("a", 2), minAvailable=1, policies=policies)
    bench.work()
    bench.set_phase("Running")
    bench.work(3)
    del bench.api.objects["job-a-0"]
    bench.work(20)
    bench.set_phase("Running")
    bench.work(90)
    assert bench.api.copy().status.retry_count == 0


def test_commands_are_executed_in_the_order_of_their_creation(bench: VolcanoBench) -> None:
    """A list names the later one first."""
    bench.api.submit(task("a", 1))
    bench.work()
    for version, action in (("12", "ResumeJob"), ("11", "AbortJob")):
        commands = command(action)
        uid = f"uid-{action}"
        meta = replace(commands.metadata, name=action, uid=uid, resource_version=version)
        bench.api.objects[action] = {"metadata": {"uid": uid}, "status": {}}
        bench.commander.upsert(replace(commands, metadata=meta))
    for _ in range(CYCLES):
        bench.work(1)
        for action in ("AbortJob", "ResumeJob"):
            if action not in bench.api.objects:
                bench.commander.remove(Removed("ns", action, f"uid-{action}"))
    assert bench.api.done("delete command") == [("AbortJob",), ("ResumeJob",)]
    assert bench.phase == "Pending"
    assert len(bench.there()) == 1
