"""`muster queue create|update|open|close|operate|delete`, over HTTP, as people type them."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest
import yaml

from extender.api.keys import QUEUE
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import COMMANDS, DEPLOYMENTS, JOBS, POD_GROUPS, QUEUES, Json
from extender.cli import queue_removal
from extender.domain.explain.observed_objects import ObservedQueue
from tests.cli.cluster import Cluster
from tests.rows import each_of

Q = "queue.scheduling.volcano.sh"
G = "podgroup.scheduling.volcano.sh"
Meanwhile = Callable[[Callable[[], object]], None]


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    """Return a cluster whose queue research has two groups; the states of queues are reported."""
    cluster.store.writes_queue_statuses = True
    cluster.queue("research", {"weight": 3, "capability": {"cpu": "16", "memory": "64Gi"}})
    cluster.queue("idle")
    cluster.group("fit", "Running", "Running", queue="research")
    cluster.group("sweep", queue="research", namespace="other")
    return cluster


def queue(cluster: Cluster, name: str) -> Json:
    found = cluster.store.get(QUEUES, "", name)
    assert found is not None, f"no queue {name}"
    return found


DEFAULTS = {"weight": 1, "priority": 0, "dequeueStrategy": "traverse"}


def spec(cluster: Cluster, name: str) -> Any:
    return queue(cluster, name)["spec"]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Return a function that takes the steps to be run, one after the other, while a command waits.

    A pause is a minute, and takes no time.
    """
    steps: list[Callable[[], object]] = []
    now = [0.0]

    def pause(_seconds: float) -> None:
        now[0] += 60
        if steps:
            steps.pop(0)()

    monkeypatch.setattr(queue_removal, "pause", pause)
    monkeypatch.setattr(queue_removal, "clock", lambda: now[0])
    return steps.append


# ---- create


def test_a_queue_is_created_from_its_flags(cluster: Cluster) -> None:
    flags = (
        *("--weight", "4", "--capability", "cpu=16,memory=64Gi", "--deserved", "cpu=8", "--parent", "root"),
        *("--guarantee", "cpu=2", "--priority", "5", "--reclaimable", "false", "--restricted", "true"),
        *("--dequeue-strategy", "fifo", "--state", "Closed"),
    )
    assert cluster.output("queue", "create", "research", *flags) == f"{Q}/research created\n"
    assert spec(cluster, "research") == {
        "weight": 4,
        "capability": {"cpu": "16", "memory": "64Gi"},
        "deserved": {"cpu": "8"},
        "guarantee": {"resource": {"cpu": "2"}},
        "parent": "root",
        "priority": 5,
        "reclaimable": False,
        "restricted": True,
        "dequeueStrategy": "fifo",
        "state": "Closed",
    }


def test_without_flags_the_server_fills_in_the_rest(cluster: Cluster) -> None:
    assert cluster.output("q", "create", "plain", "-n", "x") == f"{Q}/plain created\n"
    assert spec(cluster, "plain") == DEFAULTS


def test_vcctls_flags_say_the_same(cluster: Cluster) -> None:
    assert (
        cluster.output("queue", "create", "--name", "a", "--weight=2", "--state=Open") == f"{Q}/a created\n"
    )
    assert spec(cluster, "a") == {**DEFAULTS, "weight": 2, "state": "Open"}


@pytest.mark.parametrize(("run", "printed"), [("client", "(dry run)"), ("server", "(server dry run)")])
def test_a_dry_run_creates_nothing(cluster: Cluster, run: str, printed: str) -> None:
    assert cluster.output("queue", "create", "a", f"--dry-run={run}") == f"{Q}/a created {printed}\n"
    obj = yaml.safe_load(cluster.output("queue", "create", "a", "-w", "2", f"--dry-run={run}", "-o", "yaml"))
    filled_in = DEFAULTS if run == "server" else {}
    assert (obj["kind"], obj["metadata"]["name"]) == ("Queue", "a")
    assert obj["spec"] == {**filled_in, "weight": 2}
    assert cluster.store.get(QUEUES, "", "a") is None


def test_the_object_can_be_printed(cluster: Cluster) -> None:
    created = cluster.json("queue", "create", "a")
    assert created["metadata"]["uid"]
    assert cluster.output("queue", "create", "b", "-o", "name") == f"{Q}/b\n"


def test_a_queue_that_is_there_already(sample: Cluster) -> None:
    error = sample.refuses("queue", "create", "idle")
    assert error == 'Error: queues.scheduling.volcano.sh "idle" already exists'


@each_of(
    (("a", "--weight", "0"), "'--weight': '0': must be a whole number from 1 to 65535"),
    (("a", "--reserve-after", "soon"), "'soon': must be a duration such as 90s, 10m or 1h30m"),
    (("a", "--weight", "many"), "'--weight': 'many': must be"),
    (("a", "--capability", "cpu"), "'--capability': 'cpu': must be NAME=QUANTITY with commas"),
    (("a", "--capability", "cpu=-1"), "'--capability': 'cpu=-1': must be NAME=QUANTITY"),
    (("a", "--deserved", "cpu=8Q"), "'--deserved': 'cpu=8Q': must be NAME=QUANTITY"),
    (("a", "--guarantee", "cpu-"), "--guarantee: invalid value NAME-: must be NAME=QUANTITY"),
    (("a", "--state", "Closing"), "'Closing' is not one of 'Open', 'Closed'"),
    (("a", "--reclaimable", "no"), "'no' is not one of 'true', 'false'."),
    (("a", "--dequeue-strategy", "lifo"), "'lifo' is not one of 'fifo', 'traverse', 'fair'"),
    (("a", "--dry-run", "maybe"), "'maybe' is not one of 'none', 'client', 'server'."),
    (("a", "--name", "b"), "set only one of NAME, 'a', and --name, 'b'"),
    ((), "NAME: required value: the name of a queue"),
    (("--name", ""), "NAME: required value: the name of a queue"),
)
def test_errors_name_their_flag(flags: tuple[str, ...], message: str, *, cluster: Cluster) -> None:
    assert message in cluster.refuses("queue", "create", *flags, status=2)


@pytest.mark.parametrize("command", [("create", "new"), ("update", "idle")])
def test_a_parent_that_is_not_there_is_warned_of(sample: Cluster, command: tuple[str, ...]) -> None:
    result = sample.muster("queue", *command, "--parent", "reserch")
    assert (result.exit_code, spec(sample, command[1])["parent"]) == (0, "reserch")
    warning = result.stderr.splitlines()[0]
    assert warning.startswith("Warning: --parent: queue 'reserch' not found; ")
    assert ": research, " in warning
    for parent in ("research", "root"):
        sample.output("queue", "update", command[1], "--parent", parent)


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (500, "InternalError")])
def test_a_parent_that_cannot_be_read_is_no_error(sample: Cluster, status: int, reason: str) -> None:
    sample.store.refused_reads[QUEUES, "research"] = StatusError(status, reason, "no")
    result = sample.muster("queue", "create", "new", "--parent", "research")
    assert (result.exit_code, spec(sample, "new")["parent"], result.stderr) == (0, "research", "")


# ---- update


def test_an_update_changes_only_fields_of_its_flags(sample: Cluster) -> None:
    output = sample.output(
        "queue", "update", "research", "--weight", "5", "--capability", "cpu=32,nvidia.com/gpu=8"
    )
    assert output == f"{Q}/research updated\n"
    assert spec(sample, "research") == {
        **DEFAULTS,
        "weight": 5,
        "capability": {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": "8"},
    }


@each_of("client", "server", "none")
def test_an_amount_is_taken_away(run: str, *, sample: Cluster) -> None:
    arguments = ("queue", "update", "research", "--capability", "cpu-", f"--dry-run={run}", "-o", "json")
    assert json.loads(sample.output(*arguments))["spec"]["capability"] == {"memory": "64Gi"}
    assert ("cpu" in spec(sample, "research")["capability"]) == (run != "none")


def test_an_update_of_nothing(sample: Cluster) -> None:
    error = sample.refuses("queue", "update", "research", status=2)
    assert error.startswith("Error: nothing to change: give at least one of --weight, --capability, ")


@each_of(("update", "-w", "2"), ("open",), ("close",), ("delete",), ("describe",), ("operate", "-a", "open"))
def test_a_queue_that_is_not_there(command: tuple[str, ...], *, sample: Cluster) -> None:
    assert sample.misses("queue", command[0], "reserch", *command[1:]) == ("reserch", ["research", "idle"])


@each_of(("update", "--weight", "5"), ("close",), ("delete",))
def test_a_name_with_a_slash_reaches_no_subresource(command: tuple[str, ...], *, cluster: Cluster) -> None:
    before = cluster.store.changed_at
    assert cluster.misses("queue", command[0], "research/status", *command[1:])[0] == "research/status"
    assert cluster.store.changed_at == before


# ---- open and close


def test_closing_a_queue_lists_its_remaining_groups(sample: Cluster) -> None:
    assert sample.output("queue", "close", "research", "idle") == (
        f"{Q}/research closing, 2 groups left: 1 waits, 1 runs\n{Q}/idle closed\n"
    )
    assert queue(sample, "research")["status"]["state"] == "Closing"
    assert sample.output("queue", "open", "--name", "research") == f"{Q}/research opened\n"
    assert queue(sample, "research")["status"]["state"] == "Open"


def test_a_group_that_is_inqueue_is_not_said_to_start() -> None:
    """It may lack its first members."""
    status = {"state": "Closing", "pending": 1, "inqueue": 2, "running": 1}
    found = msgspec.convert({"metadata": {"name": "q"}, "status": status}, ObservedQueue)
    assert queue_removal.contents_of(found) == "Closing, 4 groups left: 1 waits, 2 are Inqueue, 1 runs"


def test_closing_is_not_closed_before_the_status_says_so(sample: Cluster) -> None:
    sample.store.writes_queue_statuses = False
    assert sample.output("queue", "close", "idle") == f"{Q}/idle closing\n"


def test_closing_waits_for_the_last_group(sample: Cluster, meanwhile: Meanwhile) -> None:
    meanwhile(lambda: sample.store.remove(POD_GROUPS, ("team", "fit")))
    meanwhile(lambda: sample.store.remove(POD_GROUPS, ("other", "sweep")))
    result = sample.muster("queue", "close", "research", "--wait")
    assert (result.exit_code, result.stdout) == (0, f"{Q}/research closed\n")
    progress = [line.partition(" left: ")[0] for line in result.stderr.splitlines()]
    assert progress == ["research: Closing, 2 groups", "research: Closing, 1 group"]


def test_the_timeout_names_the_remaining_groups(sample: Cluster, meanwhile: Meanwhile) -> None:
    result = sample.muster("queue", "close", "research", "--wait", "--timeout", "5m")
    assert (result.exit_code, result.stdout) == (1, "")
    error = result.stderr.splitlines()[-1]
    assert error.startswith("Error: --timeout: 5m are over: ")
    assert error.endswith(": podgroup/other/sweep, podgroup/team/fit")


def test_waiting_without_muster_points_to_the_check(sample: Cluster, meanwhile: Meanwhile) -> None:
    sample.store.writes_queue_statuses = False
    result = sample.muster("queue", "close", "research", "--wait", "--timeout", "3m")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1].endswith(
        "nothing has changed yet, is Muster running? Try muster check"
    )


def test_opening_waits_until_it_is_open(sample: Cluster) -> None:
    sample.output("queue", "close", "idle")
    assert sample.output("queue", "open", "idle", "--wait") == f"{Q}/idle opened\n"


@each_of(("close", "idle", "root"), ("operate", "root", "-a", "close"))
def test_closing_root_takes_its_state(command: tuple[str, ...], *, sample: Cluster) -> None:
    before = sample.store.changed_at
    message = sample.refuses("queue", *command)
    assert message == "To close all queues: muster queue update root --state Closed"
    assert sample.store.changed_at == before


def test_a_dry_run_closes_nothing(sample: Cluster) -> None:
    for run, sample.store.drops_state in product(("client", "server"), (False, True)):
        assert sample.output("queue", "close", "idle", f"--dry-run={run}").startswith(f"{Q}/idle closed (")
    assert "state" not in spec(sample, "idle")
    assert sample.store.all(COMMANDS) == []


@each_of("5", "-1s", "soon")
def test_an_invalid_timeout_is_refused(timeout: str, *, sample: Cluster) -> None:
    message = f"'--timeout': {timeout!r}: must be 0 or a duration such as 30s or 5m"
    assert message in sample.refuses("queue", "close", "idle", "--timeout", timeout, status=2)


# ---- on Volcano's CRD, which has no spec.state


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        (("close", "idle"), "CloseQueue"),
        (("open", "idle"), "OpenQueue"),
        (("update", "idle", "--state", "Closed"), "CloseQueue"),
        (("operate", "idle", "--action", "close"), "CloseQueue"),
        (("create", "new", "--state", "Closed"), "CloseQueue"),
        (("create", "new", "--state", "Open"), None),  # as it is anyway
        (("update", "idle", "--weight", "2"), None),
    ],
)
def test_a_state_that_is_dropped_is_asked_for_by_a_command(
    sample: Cluster, arguments: tuple[str, ...], action: str | None
) -> None:
    sample.store.drops_state = True
    sample.output("queue", *arguments)
    name = arguments[1]
    commands = sample.store.all(COMMANDS)
    assert [each["action"] for each in commands] == ([action] if action else [])
    for each in commands:
        meta, target = each["metadata"], each["target"]
        assert (meta["namespace"], meta["ownerReferences"]) == ("default", [target])
        assert meta["name"].startswith(f"{name}-{each['action'].lower()}-")
        assert (target["kind"], target["name"]) == ("Queue", name)
        assert target["uid"] == queue(sample, name)["metadata"]["uid"]


def test_without_commands_either_it_says_so(sample: Cluster) -> None:
    sample.store.drops_state = True
    sample.store.refused_writes[COMMANDS] = StatusError(404, "NotFound", "the server could not find it")
    result = sample.muster("queue", "close", "idle")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        "Error: queue idle was not made Closed: the cluster's Queue has no spec.state, and it has no Commands"
        " of bus.volcano.sh",
        "Apply Muster's kinds: kubectl apply -f manifests/crds",
    ]


def test_no_command_closes_the_root(sample: Cluster) -> None:
    sample.store.drops_state = True
    sample.queue("root")
    result = sample.muster("queue", "update", "root", "--state", "Closed")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no Command closes root" in result.stderr
    assert sample.store.all(COMMANDS) == []


# ---- operate, as vcctl has it


def test_operate_equals_the_commands_for_states(sample: Cluster) -> None:
    assert sample.output("queue", "operate", "--name", "idle", "--action", "close") == f"{Q}/idle closed\n"
    assert sample.output("queue", "operate", "--name", "idle", "--action", "open") == f"{Q}/idle opened\n"
    output = sample.output("queue", "operate", "idle", "--action", "update", "--weight", "7")
    assert output == f"{Q}/idle updated\n"
    assert spec(sample, "idle") == {**DEFAULTS, "weight": 7, "state": "Open"}


@each_of(
    ((), "Error: --action: required value: one of open, close, update"),
    (("--action", "drain"), "Error: --action: invalid value 'drain': must be one of open, close, update"),
    (
        ("--action", "update"),
        "Error: --weight: required value: with --action update, a number from",
    ),
)
def test_operate_needs_an_action_that_it_knows(
    flags: tuple[str, ...], message: str, *, sample: Cluster
) -> None:
    assert sample.refuses("queue", "operate", "idle", *flags, status=2).startswith(message)


# ---- delete


def test_only_a_closed_queue_is_deleted(sample: Cluster) -> None:
    result = sample.muster("queue", "delete", "research")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        "Error: queue research is Open, 2 groups left: 1 waits, 1 runs; only a Closed queue can be deleted",
        "To close it: muster queue close research --wait, or muster queue delete research --cascade",
    ]
    sample.output("queue", "close", "idle")
    assert sample.output("queue", "delete", "idle") == f"{Q}/idle deleted\n"
    assert sample.store.get(QUEUES, "", "idle") is None


def test_a_cascade_closes_empties_and_deletes(sample: Cluster) -> None:
    sample.group("elsewhere", queue="idle")
    result = sample.muster("queue", "delete", "research", "--cascade")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{G}/sweep deleted (namespace other)",
        f"{G}/fit deleted (namespace team)",
        f"{Q}/research deleted",
    ]
    assert [each["metadata"]["name"] for each in sample.store.all(POD_GROUPS)] == ["elsewhere"]
    assert sample.store.get(QUEUES, "", "research") is None


def test_jobs_go_with_their_groups(sample: Cluster) -> None:
    """Others stay, and so do other things that own groups."""
    for name, queue, kind, api in (
        ("train", "research", JOBS, "batch/v1"),
        ("stays", "idle", JOBS, "batch/v1"),
        ("serve", "research", DEPLOYMENTS, "apps/v1"),
    ):
        meta = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
        sample.store.put(kind, {"apiVersion": api, "kind": kind.name, "metadata": meta, "spec": {}})
        owner = {"apiVersion": api, "kind": kind.name, "name": name, "uid": f"uid-{name}"}
        sample.group(name, queue=queue, more_metadata={"ownerReferences": [{**owner, "controller": True}]})
    going = [
        "job.batch/train {} (namespace team)",
        f"{G}/train {{}} (namespace team)",
    ]
    dry = sample.output("queue", "delete", "research", "--cascade", "--jobs", "--dry-run=client").splitlines()
    assert [line.format("would be deleted") for line in going] == dry[-3:-1]
    output = sample.muster("queue", "delete", "research", "--cascade", "--jobs").stdout.splitlines()
    assert {line.format("deleted") for line in going} <= {*output}
    assert [each["metadata"]["name"] for each in sample.store.all(JOBS)] == ["stays"]
    assert [each["metadata"]["name"] for each in sample.store.all(DEPLOYMENTS)] == ["serve"]
    assert sample.refuses("queue", "delete", "idle", "--jobs", status=2).startswith(
        "Error: --jobs: requires --casc"
    )


def test_a_cascade_waits_for_groups_with_finalizers(sample: Cluster, meanwhile: Meanwhile) -> None:
    """Also delete groups that came before the queue was closed and were seen only later."""
    held = sample.store.get(POD_GROUPS, "team", "fit")
    assert held is not None
    sample.store.put(
        POD_GROUPS, {**held, "metadata": {**held["metadata"], "finalizers": ["example.com/held"]}}
    )
    meanwhile(lambda: sample.group("late", queue="research"))
    meanwhile(lambda: sample.store.remove(POD_GROUPS, ("team", "fit")))
    result = sample.muster("queue", "delete", "research", "--cascade")
    assert result.exit_code == 0
    assert f"{G}/late deleted (namespace team)" in result.stdout
    assert "research: Closing, 1 group " in result.stderr
    assert sample.store.get(QUEUES, "", "research") is None


def test_a_cascade_names_the_pods_that_are_left(sample: Cluster) -> None:
    named = {"annotations": {QUEUE: "research"}}
    sample.pod("alone", metadata=named)
    sample.pod("orphan", "sweep", metadata=named)
    sample.pod("placed", metadata=named, node="n", status={"phase": "Pending"})
    sample.pod("foreign", metadata=named, scheduler="other")
    sample.namespace("team", "research")
    for number in range(6):
        sample.pod(f"by-namespace-{number}")
    result = sample.muster("queue", "delete", "research", "--cascade")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-2:] == [
        "research: 8 pods still name it and wait: team/alone, team/by-namespace-0, team/by-namespace-1, "
        "team/by-namespace-2, team/by-namespace-3, team/by-namespace-4 and 2 more",
        "To end the wait: delete their owners, or let them name another queue than research",
    ]


def test_the_timeout_ends_with_pods_that_have_no_group(sample: Cluster, meanwhile: Meanwhile) -> None:
    sample.store.writes_queue_statuses = False
    sample.queue("idle", {"state": "Closed"}, state="Closing", running=1)
    message = sample.muster("queue", "delete", "idle", "--cascade", "--timeout", "3m").stderr.splitlines()[-1]
    assert message.endswith("; pods that have no PodGroup are left to their owners")


@each_of("client", "server")
def test_a_dry_run_of_a_cascade_lists_what_it_would_delete(run: str, *, sample: Cluster) -> None:
    output = sample.output("queue", "delete", "research", "--cascade", f"--dry-run={run}").splitlines()
    assert output[:2] == [
        f"{G}/sweep would be deleted (namespace other)",
        f"{G}/fit would be deleted (namespace team)",
    ]
    assert len(sample.store.all(POD_GROUPS)) == 2
    assert "state" not in spec(sample, "research")


def test_a_queue_with_queues_below_it_stays(sample: Cluster) -> None:
    sample.queue("child", {"parent": "idle"})
    result = sample.muster("queue", "delete", "idle", "--cascade")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: queue idle has queues below it: child\nDelete them first")


@pytest.mark.parametrize("name", ["default", "root"])
def test_two_queues_are_never_deleted(sample: Cluster, name: str) -> None:
    sample.queue(name)
    sample.group("any", queue=name)
    error = sample.refuses("queue", "delete", name, "--cascade")
    assert error == f"Error: queue {name} cannot be deleted: default and root stay"
    assert sample.store.get(POD_GROUPS, "team", "any") is not None


# ---- what the API server says


WEBHOOK = 'admission webhook "queues.kube-muster.io" denied the request: spec.x: no'
POLICY = "x is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: close it first"
UNREACHED = 'Internal error: failed calling webhook "q": connection refused'


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (StatusError(403, "Forbidden", WEBHOOK), "refused: spec.x: no"),
        (StatusError(422, "Invalid", POLICY), "refused: close it first"),
        (
            StatusError(500, "InternalError", UNREACHED),
            f"a webhook does not answer: {UNREACHED}\nThe administr",
        ),
        (StatusError(403, "Forbidden", "you cannot patch queues"), "not allowed: you cannot patch queues"),
        (
            StatusError(409, "Conflict", "the object has been modified"),
            "the object has been modified\nIt was changed",
        ),
        (StatusError(422, "Invalid", "spec.weight: 0"), "the API server refuses: spec.weight: 0"),
    ],
)
def test_refusals_have_the_words_of_the_server(sample: Cluster, refusal: StatusError, message: str) -> None:
    sample.store.refused_writes[QUEUES] = refusal
    result = sample.muster("queue", "update", "research", "--weight", "2")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {message}")


# ---- policies, hold and resume


def test_policies_are_fields_of_the_spec(sample: Cluster) -> None:
    flags = "--dequeue-strategy mixed --priority-threshold 7 --ageing 2 --default-request cpu=1"
    flags = f"{flags} --fair-share Historical --placement Spread"
    limits = "--limits groups=4,pods=40 --user-limits groups=1 --namespace-limits pods=8"
    sample.muster(*f"queue update idle {flags} {limits}".split())
    assert spec(sample, "idle") == {
        **DEFAULTS,
        "dequeueStrategy": "mixed",
        "priorityThreshold": 7,
        "ageing": 2,
        "placement": "Spread",
        "fairShare": "Historical",
        "defaultRequest": {"cpu": "1"},
        "limits": {"groups": 4, "pods": 40, "perUser": {"groups": 1}, "perNamespace": {"pods": 8}},
    }
    sample.output("queue", "update", "idle", "--limits", "groups-", "--user-limits", "pods=9")
    assert spec(sample, "idle")["limits"] == {
        "pods": 40,
        "perUser": {"groups": 1, "pods": 9},
        "perNamespace": {"pods": 8},
    }


def test_preemption_is_set_field_by_field(sample: Cluster) -> None:
    flags = (
        "--preemption-after 5m --preemption-at-most 30m --preemption-patience 0.5 --preemption-min-runtime 1h"
    )
    sample.output(*f"queue update idle {flags}".split())
    flags = "--preemption-honour none --preemption-max-grace-period 10m"
    sample.output(*f"queue update idle {flags}".split())
    assert spec(sample, "idle")["preemption"]["honour"] == []
    sample.output(*["queue", "update", "idle", "--preemption-honour", "Preemptable,PodDisruptionBudgets"])
    victims = (
        "within-queue LowerPriority,unmanaged Never,borrow-within-cohort LowerPriority,consolidation true"
    )
    flags = " ".join(f"--preemption-{each}" for each in f"{victims},max-priority-threshold 5".split(","))
    sample.output(*f"queue update idle {flags} --preemption-at-most 45m".split())
    assert spec(sample, "idle")["preemption"] == {
        "after": "5m",
        "atMost": "45m",
        "patience": "0.5",
        "minRuntime": "1h",
        "honour": ["Preemptable", "PodDisruptionBudgets"],
        "maxGracePeriod": "10m",
        "withinQueue": "LowerPriority",
        "unmanaged": "Never",
        "consolidation": True,
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5},
    }
    printed = sample.refuses("queue", "update", "idle", "--preemption-honour", "Budgets", status=2)
    assert "'Budgets': must be none, or one or more of PodDisruptionBudgets, Preemptable" in printed
    printed = sample.refuses("queue", "update", "idle", "--preemption-patience", "1001", status=2)
    assert "'--preemption-patience': '1001': must be a number from 0 to 1000" in printed


@each_of("groups", "cpu=2", "groups=x", "pods=-1", "groups-=2", "pods=9999999999")
def test_a_limit_that_is_not_a_number_is_reported(given: str, *, sample: Cluster) -> None:
    printed = sample.refuses("queue", "update", "idle", "--limits", given, status=2)
    assert f"'--limits': '{given}': must be groups=NUMBER, pods=NUMBER" in printed


def test_a_queue_is_held_and_resumed(sample: Cluster) -> None:
    assert sample.output("queue", "hold", "research", "idle") == f"{Q}/research held\n{Q}/idle held\n"
    assert spec(sample, "research")["stopPolicy"] == "Hold"
    assert sample.output("queue", "hold", "research", "--drain") == f"{Q}/research draining\n"
    assert spec(sample, "research")["stopPolicy"] == "HoldAndDrain"
    assert sample.output("queue", "resume", "research") == f"{Q}/research resumed\n"
    assert spec(sample, "research")["stopPolicy"] == "None"


def test_a_group_is_held_and_resumed(sample: Cluster) -> None:
    def annotations() -> Any:
        found = sample.store.get(POD_GROUPS, "other", "sweep")
        assert found is not None
        return found["metadata"].get("annotations")

    assert (
        sample.output("hold", "sweep", "-n", "other", "--dry-run", "client") == f"{G}/sweep held (dry run)\n"
    )
    assert not annotations()
    assert sample.output("hold", "sweep", "-n", "other") == f"{G}/sweep held\n"
    assert annotations() == {"kube-muster.io/hold": "true"}
    assert sample.output("resume", "sweep", "-n", "other") == f"{G}/sweep resumed\n"
    assert not annotations()


@each_of("hold", "resume")
def test_the_error_for_a_missing_group_names_a_similar_one(command: str, *, sample: Cluster) -> None:
    refused = sample.refuses(command, "sweeep", "-n", "other")
    assert "is called 'sweeep' in namespace other" in refused
    assert refused.endswith("did you mean podgroup/sweep?")
