"""Cluster of the tests of commands: an API server with objects as Muster writes them, and `muster`."""

import json
import os
import pty
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner, Result

from extender.api.keys import GATE, GROUP_ANNOTATION, QUEUE
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import (
    EVENTS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    Json,
    ResourceKind,
)
from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.cli import main
from extender.cli.access import Flags, open_access
from extender.cli.kinds import Target, own_kind
from extender.cli.why.answers import answers
from extender.cli.why.explanation import Explanation
from extender.sim.apiserver.server import ApiServer
from extender.sim.kubelets import node


def ago(**spans: float) -> str:
    """Return the timestamp of a time before now, such as `ago(minutes=30)`."""
    return (datetime.now(UTC) - timedelta(**spans)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Guarded(Store):
    """Store that refuses requests, as RBAC and admission would.

    `refused_lists`: lists as (plural, namespace), with an empty namespace for all. `refused_writes`: errors
    for writes, by kind. `refused_reads`: errors for reads of an object, by kind and name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused_lists: set[tuple[str, str]] = set()
        self.refused_writes: dict[ResourceKind, StatusError] = {}
        self.refused_reads: dict[tuple[ResourceKind, str], StatusError] = {}
        self.writes_queue_statuses = False  # whether queues get statuses at once, as from Muster
        self.drops_state = False  # whether spec.state of queues is dropped, as by Volcano's CRD

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Json | None:
        if refusal := self.refused_reads.get((kind, name)):
            raise refusal
        return super().get(kind, namespace, name)

    def put(self, kind: ResourceKind, obj: Json) -> Json:
        self._refuse(kind)
        if self.drops_state and kind is QUEUES:
            obj = {**obj, "spec": {key: value for key, value in obj["spec"].items() if key != "state"}}
        stored = super().put(kind, obj)
        self._update_queue_statuses(kind)
        return stored

    def remove(self, kind: ResourceKind, key: tuple[str, str]) -> Json:
        self._refuse(kind)
        removed = super().remove(kind, key)
        self._update_queue_statuses(kind)
        return removed

    def _refuse(self, kind: ResourceKind) -> None:
        if kind in self.refused_writes:
            raise self.refused_writes[kind]

    def _update_queue_statuses(self, kind: ResourceKind) -> None:
        if self.writes_queue_statuses and kind in (QUEUES, POD_GROUPS):
            for queue in self.all(QUEUES):
                status = _status_of(queue, self.all(POD_GROUPS))
                if status != queue.get("status"):
                    super().put(QUEUES, {**queue, "metadata": {**queue["metadata"]}, "status": status})

    def listing(self, kind: ResourceKind, namespace: str = "", version: int = 0) -> tuple[list[Json], int]:
        if (kind.plural, namespace) in self.refused_lists:
            raise StatusError(403, "Forbidden", f'{kind.qualified} is forbidden: User "you" cannot list it')
        return super().listing(kind, namespace, version)


def _status_of(queue: Json, groups: list[Json]) -> Json:
    """Return the status of a queue as the queue controller writes it."""
    groups_of_queue = [group for group in groups if group["spec"].get("queue") == queue["metadata"]["name"]]
    phases = [group["status"].get("phase", "Pending").lower() for group in groups_of_queue]
    state = "Open"
    if queue["spec"].get("state") == "Closed":
        state = "Closing" if groups_of_queue else "Closed"
    counts = {phase: phases.count(phase) for phase in ("pending", "inqueue", "running")}
    return {**queue.get("status", {}), "state": state, **counts}


def _read_to_the_end(terminal: int) -> bytes:
    text = b""
    with suppress(OSError):  # the error of a terminal to which no process writes any more
        while piece := os.read(terminal, 65_536):
            text += piece
    return text


class Cluster:
    """API server with objects, and a user with the command `muster`."""

    def __init__(self, folder: Path) -> None:
        self.store = Guarded()
        self.server = ApiServer(Service(self.store))
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(kubeconfig(self.server.url)))

    def lock(self, *lists: tuple[str, str]) -> None:
        self.store.refused_lists |= set(lists)

    def muster(self, *arguments: str, **environment: str) -> Result:
        all_arguments = [*arguments, "--kubeconfig", str(self.kubeconfig)]
        return CliRunner().invoke(main, all_arguments, env=environment, catch_exceptions=False)

    def on_a_terminal(self, *arguments: str, **environment: str) -> str:
        """Return the output of a successful command on a terminal of 50 columns."""
        own_end, program_end = pty.openpty()
        settings = {"KUBECONFIG": str(self.kubeconfig), "TERM": "xterm", "COLUMNS": "50", **environment}
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(_read_to_the_end, own_end)
            with (
                open(program_end, "w", encoding="utf-8") as out,
                redirect_stdout(out),
                redirect_stderr(out),
                patch.dict(os.environ, settings),
            ):
                assert not main.main([*arguments], "muster", standalone_mode=False)
            text = reading.result().decode()
        os.close(own_end)
        return text.replace("\r\n", "\n")

    def output(self, *arguments: str) -> str:
        """Return the output of a successful command."""
        result = self.muster(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.output(*arguments, "-o", "json"))

    def answers(self, target: str) -> list[Explanation]:
        """Return the records that `muster why` prints."""
        kind, _, name = target.rpartition("/")
        with open_access(Flags(str(self.kubeconfig), None, None)) as access:
            return answers(access, Target(own_kind(kind) or kind, name))

    def answer(self, target: str) -> Explanation:
        (explanation,) = self.answers(target)
        return explanation

    def codes(self, target: str) -> tuple[str, str, list[str]]:
        """Return the verdict and the reason of an answer, and the codes of its sentences."""
        explanation = self.answer(target)
        return (
            str(explanation.verdict),
            str(explanation.reason),
            [statement.code for statement in explanation.sentence],
        )

    def refuses(self, *arguments: str, status: int = 1) -> str:
        """Return the last line of the error output of a failing command."""
        result = self.muster(*arguments)
        assert (result.exit_code, result.stdout) == (status, "")
        return result.stderr.splitlines()[-1]

    def misses(self, *arguments: str) -> tuple[str, list[str]]:
        """Return the name that a failing command does not find, and the names that it suggests."""
        error = self.refuses(*arguments)
        name = re.search(r"'(\S+)'.* not found", error)
        suggestions = re.search(r"(?:are:|mean) (.+?)\??$", error)
        assert name
        return name[1], re.split(", | or ", suggestions[1]) if suggestions else []

    # ---- objects

    def queue(self, name: str, spec: Json | None = None, metadata: Json | None = None, **status: Any) -> None:
        self._put(
            QUEUES,
            {"name": name, **(metadata or {})},
            {"spec": {"weight": 1, **(spec or {})}, "status": status},
        )

    def local_queue(
        self, name: str, queue: str, reason: str = "Ready", stop_policy: str = "", **status: Any
    ) -> None:
        """Add a LocalQueue. `reason`: that of its condition Active."""
        active = {"type": "Active", "status": str(reason == "Ready"), "reason": reason, "message": ""}
        meta = {"name": name, "namespace": "team"}
        self._put(
            LOCAL_QUEUES,
            meta,
            {
                "spec": {"queue": queue, "stopPolicy": stop_policy},
                "status": {**status, "conditions": [active]},
            },
        )

    def group(
        self,
        name: str,
        phase: str = "Pending",
        reason: str = "NoRoom",
        message: str = "",
        *,
        queue: str = "",
        min_member: int = 2,
        namespace: str = "team",
        days: float = 20,
        more: Json | None = None,
        more_spec: Json | None = None,
        more_metadata: Json | None = None,
    ) -> None:
        condition = {
            "type": "Scheduled",
            "status": "True" if phase == "Running" else "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": ago(minutes=30),
        }
        spec = {"minMember": min_member, **({"queue": queue} if queue else {}), **(more_spec or {})}
        status = {"phase": phase, "conditions": [condition], **(more or {})} if phase else {}
        meta = {"name": name, "namespace": namespace, "creationTimestamp": ago(days=days)}
        meta |= more_metadata or {}
        self._put(POD_GROUPS, meta, {"spec": spec, "status": status})

    def pod(
        self,
        name: str,
        group: str = "",
        *,
        node: str = "",
        gates: Sequence[str] = (),
        scheduler: str = "muster",
        status: Json | None = None,
        metadata: Json | None = None,
        spec: Json | None = None,
    ) -> None:
        annotations = {GROUP_ANNOTATION: group} if group else {}
        meta = {"name": name, "namespace": "team", "annotations": annotations, **(metadata or {})}
        pod_spec: Json = {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}],
            **({"nodeName": node} if node else {}),
            **({"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}),
            **(spec or {}),
        }
        phase = "Running" if node else "Pending"
        self._put(PODS, meta, {"spec": pod_spec, "status": {"phase": phase, **(status or {})}})

    def gang(self, name: str, size: int, node: str = "", **group: Any) -> None:
        """Add a group with its pods, which are on a node or have gates."""
        self.group(name, min_member=size, **group)
        for number in range(size):
            self.pod(f"{name}-{number}", name, node=node, gates=() if node else (GATE,))

    def event(self, name: str, reason: str, message: str, minutes: float, kind: str = "Pod") -> None:
        """Add an event on an object of namespace team, some minutes ago."""
        subject = {"kind": kind, "name": name, "namespace": "team", "uid": f"uid-{name}"}
        event = {"reason": reason, "message": message, "lastTimestamp": ago(minutes=minutes)}
        meta = {"name": f"{name}.{reason}", "namespace": "team"}
        self._put(EVENTS, meta, {"involvedObject": subject, **event})

    def node(self, name: str, cpu: str = "8") -> None:
        new_node = node(name, cpu, "64Gi")
        self.store.put(NODES, {**new_node, "metadata": {**new_node["metadata"], "uid": name}})

    def namespace(self, name: str, queue: str = "") -> None:
        self._put(NAMESPACES, {"name": name, "annotations": {QUEUE: queue} if queue else {}}, {})

    def _put(self, kind: ResourceKind, metadata: Json, fields: Json) -> None:
        meta = {"uid": f"uid-{metadata['name']}", "creationTimestamp": ago(days=20), **metadata}
        self.store.put(kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **fields})


def unschedulable(message: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [condition]}


def kubeconfig(server: str) -> Json:
    """Return a kubeconfig with two contexts of one cluster, each with a namespace."""
    contexts = {"here": "team", "there": "other"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "you", "user": {}}],
        "contexts": [
            {"name": name, "context": {"cluster": "c", "user": "you", "namespace": namespace}}
            for name, namespace in contexts.items()
        ],
        "current-context": "here",
    }
