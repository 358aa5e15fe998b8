"""Stage of one test: its namespace, kubelets and observer, and helpers of scenarios."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain
from typing import Any

import pytest

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.jobs import StagedJobs
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.observer import Observer
from tests.e2e.harness.policy import WITHOUT_POLICIES, in_force
from tests.e2e.harness.resources import (
    CLUSTER_ROLES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_QUOTAS,
    Resource,
)
from tests.e2e.harness.scheduler import PLAIN, KubeScheduler, sidecar_options
from tests.e2e.harness.sigs import SigsController, SigsOperator
from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.e2e.harness.waiting import GENEROUS, wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-edit"  # label of ClusterRoles
VIEW = bool(os.environ.get("MUSTER_E2E_VIEW"))  # whether every scenario uses the scheduler proxy


class Stage:
    """Stage of a test. Started programs end with the test."""

    def __init__(self, cluster: ControlPlane, namespace: str, kubelet: Kubelet, observer: Observer) -> None:
        self.cluster = cluster
        self.api = cluster.admin
        self.namespace = namespace
        self.kubelet = kubelet
        self.observer = observer
        self.jobs = StagedJobs(self.api, namespace, kubelet)
        self.started = ExitStack()

    def start_scheduler(
        self, config: str | Json = PLAIN, *, wait: bool = True, **options: Any
    ) -> KubeScheduler:
        """Start a scheduler: `start_scheduler("sidecar-gates.yaml", muster=muster.address)`.

        By default, it has the stock configuration, without Muster.
        """
        scheduler = KubeScheduler(self.cluster, config, **options)
        self.started.push(scheduler)  # before its start, so that it is stopped even if it never becomes ready
        scheduler.start(wait=wait)
        return scheduler

    def start_sidecar(self, muster: Muster, /, **options: Any) -> KubeScheduler:
        """Start the scheduler next to a Muster, with its scheduler proxy if it has one."""
        return self.start_scheduler(**{**sidecar_options(muster), **options})

    def start_muster(
        self,
        *arguments: str,
        user: User | None,
        server: str | None = None,
        wait: bool = True,
        view: bool = VIEW,
        **options: Any,
    ) -> Muster:
        """Start Muster. `arguments`: of `muster serve`. `server`: the URL of a proxy, if any.

        Without a user, Muster finds the cluster as in a pod.
        """
        kubeconfig = self.cluster.kubeconfig(user, server) if user else None
        muster = Muster(self.cluster, kubeconfig, arguments=arguments, view=view, **options)
        self.started.push(muster)
        muster.start(wait=wait)
        return muster

    def policy(self, file: str) -> AbstractContextManager[None]:
        """Apply a policy: `with stage.policy("gates/admission-policy.yaml"): ...`."""
        if self.cluster.kubernetes in WITHOUT_POLICIES:
            pytest.skip(
                f"Kubernetes {self.cluster.kubernetes} has no MutatingAdmissionPolicy unless asked to"
            )
        return in_force(self.api, self.namespace, file)

    def start_controller_manager(self, *flags: str) -> None:
        """Start the controllers of Jobs, garbage collection and namespaces."""
        process = self.cluster.start_controller_manager(further_flags=flags)
        self.started.callback(process.kill)

    def grant_edit(self, user: str) -> None:
        """Give a user the role edit in the test's namespace, with the rights that the manifests add to it."""
        aggregating = self.cluster.start_controller_manager(("clusterrole-aggregation-controller",))
        wait_for(self._is_edit_whole, what="the role edit has the rules of all aggregated roles")
        aggregating.stop()
        manifests.apply_one(self.api, objects.binding("edit", user, namespace=self.namespace))

    def _is_edit_whole(self) -> bool:
        added = self.api.items(CLUSTER_ROLES, labelSelector=f"{AGGREGATED}=true")
        edit_rules = self.api.get(CLUSTER_ROLES, "edit").get("rules") or []
        rules = [role.get("rules") or [] for role in added]
        return all(rules) and all(rule in edit_rules for rule in chain.from_iterable(rules))

    def start_operator(self, operator: SigsOperator) -> SigsController:
        """Start a real controller of kubernetes-sigs and kube-controller-manager.

        Such tests have the marker of its name: `jobset`, `lws`.
        """
        return self.started.enter_context(SigsController(self.cluster, operator))

    def start_wire(self, server: str | None = None) -> TcpProxy:
        """Start a TCP proxy to `server`, by default the API server, whose connections can be cut."""
        return self.started.enter_context(TcpProxy(int((server or self.cluster.server).rpartition(":")[2])))

    def start_verbs_proxy(self, muster: Muster) -> FaultProxy:
        """Start a fault proxy between a scheduler and a Muster's verbs."""
        return self.started.enter_context(FaultProxy(f"http://{muster.address}"))

    def start_fault_proxy(self, remember: int | None = None) -> FaultProxy:
        cluster = self.cluster
        proxy = FaultProxy(cluster.server, cluster.certificate, cluster.key, remember)
        return self.started.enter_context(proxy)

    def nodes(self, count: int, *, prefix: str = "n", **options: Any) -> list[str]:
        """Create nodes: `nodes(3, cpu="4")` creates n0, n1 and n2."""
        bodies = [objects.node(f"{prefix}{number}", **options) for number in range(count)]
        return _names(self.api.create_many(NODES, bodies))

    def queue(self, name: str, **spec: Any) -> Json:
        return self.api.create(QUEUES, objects.queue(name, **spec))

    def set_queue_state(self, name: str, state: str) -> None:
        """Open or close a queue, and wait until Muster has changed its state.

        Otherwise Muster might see a new group before the queue's state, since these have separate watches.
        """
        self.api.patch(QUEUES, name, {"spec": {"state": state}})
        states = {"Open"} if state == "Open" else {"Closing", "Closed"}
        wait_for(
            lambda: self.api.get(QUEUES, name).get("status", {}).get("state") in states,
            what=f"queue {name} is {state}",
        )

    def priority(self, name: str, value: int) -> str:
        """Create a PriorityClass for this test, wait until pods can use it, and return its name."""
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        self.api.create(PRIORITY_CLASSES, {**head, "metadata": {"name": name}})
        self.started.callback(self.api.delete, PRIORITY_CLASSES, name)
        sample = objects.pod("sample", namespace=self.namespace, priorityClassName=name)
        wait_for(lambda: self.admits(PODS, sample), what=f"pods of priority {name} admitted")
        return name

    def admits(self, resource: Resource, body: Json) -> bool:
        """Return whether the API server would create an object now."""
        try:
            self.api.request("POST", f"{resource.path(self.namespace)}?dryRun=All", body)
        except ApiError:
            return False
        return True

    def gang(
        self, name: str, size: int, *, min_member: int | None = None, queue: str = "default", **pod: Any
    ) -> list[str]:
        """Create a PodGroup and its pods `name-0`, `name-1`, ... By default, minMember is `size`."""
        self.group(name, size if min_member is None else min_member, queue=queue)
        return self.pods(name, size, group=name, **pod)

    def job(self, name: str, **options: Any) -> Json:
        """Create a Job. `options`: as for `harness.jobs.job`."""
        return self.jobs.create(name, **options)

    def group(self, name: str, min_member: int, **spec: Any) -> Json:
        """Create a PodGroup without pods. `spec`: as for `objects.pod_group`."""
        body = objects.pod_group(name, namespace=self.namespace, min_member=min_member, **spec)
        return self.api.create(POD_GROUPS, body)

    def limit_pods(self, pods: str, *scopes: str) -> None:
        """Create or change a ResourceQuota with its status, since its controller does not run."""
        spec, status = {"hard": {"pods": pods}}, {"hard": {"pods": pods}, "used": {"pods": "0"}}
        if self.api.find(RESOURCE_QUOTAS, "limit", self.namespace):
            self.api.patch(RESOURCE_QUOTAS, "limit", {"spec": spec}, self.namespace)
        else:
            meta = {"name": "limit", "namespace": self.namespace}
            quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta}
            self.api.create(RESOURCE_QUOTAS, {**quota, "spec": {**spec, "scopes": list(scopes)}})
            self.started.callback(self.api.delete_all, RESOURCE_QUOTAS, self.namespace)
        self.api.patch(RESOURCE_QUOTAS, "limit", {"status": status}, self.namespace, "status")

    def pods(self, name: str, count: int, *, first: int = 0, **options: Any) -> list[str]:
        """Create pods `name-0`, `name-1`, ... `options`: as for `objects.pod`."""
        numbers = range(first, first + count)
        bodies = [objects.pod(f"{name}-{number}", namespace=self.namespace, **options) for number in numbers]
        return _names(self.api.create_many(PODS, bodies))

    def pod(self, name: str) -> Json:
        return self.api.get(PODS, name, self.namespace)

    def pod_group(self, name: str) -> Json:
        return self.api.get(POD_GROUPS, name, self.namespace)

    def own_group(self, pod: str) -> str:
        """Return the name of the group that Muster makes for a pod without group and owner."""
        return f"podgroup-{self.pod(pod)['metadata']['uid']}"

    def wait_group(self, name: str, **status: Any) -> Json:
        """Wait until the PodGroup exists with these values: `wait_group("a", phase="Running", running=3)`."""

        def with_status() -> Json | None:
            podgroup = self.api.find(POD_GROUPS, name, self.namespace)
            return podgroup if podgroup and status.items() <= podgroup.get("status", {}).items() else None

        podgroup = wait_for(with_status, what=f"PodGroup {name} {status}")
        assert podgroup is not None
        return podgroup

    def reason(self, group: str) -> str:
        """Return the reason of a PodGroup's condition Scheduled; empty if there is none."""
        conditions = self.pod_group(group).get("status", {}).get("conditions", [])
        return next((condition["reason"] for condition in conditions if condition["type"] == "Scheduled"), "")

    def message(self, group: str) -> str:
        """Return the message of a PodGroup's condition Scheduled; empty if there is none."""
        conditions = self.pod_group(group).get("status", {}).get("conditions") or []
        return next(
            (condition.get("message", "") for condition in conditions if condition["type"] == "Scheduled"), ""
        )

    def wait_reason(self, group: str, *reasons: str, timeout: float = GENEROUS) -> str:
        """Wait until the PodGroup has one of these reasons, and return it."""

        def one_of_them() -> str | None:
            reason = self.reason(group)
            return reason if reason in reasons else None

        try:
            return str(wait_for(one_of_them, timeout))
        except TimeoutError:
            description = f"{group} has {self.reason(group)!r}, never one of {reasons}"
            raise TimeoutError(f"{description}: {self.pod_group(group).get('status')}") from None

    def first_with_reason(self, groups: Iterable[str], reason: str) -> str:
        """Wait until one of these PodGroups has a reason, and return its name."""
        names = list(groups)

        def with_reason() -> list[str]:
            return [name for name in names if self.reason(name) == reason]

        return wait_for(with_reason, what=f"one of {names} says {reason}")[0]

    def phases(self, names: Iterable[str]) -> set[str]:
        """Return the phases of pods; Gone for deleted ones."""
        present = {
            pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.api.items(PODS, self.namespace)
        }
        return {present.get(name, "Gone") for name in names}

    def running(self, gangs: Mapping[str, Iterable[str]]) -> list[str]:
        """Return the gangs of which all pods run. `gangs`: the names of pods, by gang."""
        return [name for name, pods in gangs.items() if self.phases(pods) == {"Running"}]

    def bound(self, names: Iterable[str]) -> dict[str, str]:
        """Return the nodes of the bound pods among these, by name."""
        requested = set(names)
        pods = [pod for pod in self.api.items(PODS, self.namespace) if pod["metadata"]["name"] in requested]
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]}

    def wait_bound(self, names: Sequence[str], timeout: float = GENEROUS) -> dict[str, str]:
        def all_bound() -> dict[str, str] | None:
            nodes_by_pod = self.bound(names)
            return nodes_by_pod if len(nodes_by_pod) == len(names) else None

        nodes = wait_for(all_bound, timeout, f"{len(names)} pods {names[0]}.. bound")
        assert nodes is not None
        return nodes

    def wait_phase(self, names: Sequence[str], phase: str = "Running", timeout: float = GENEROUS) -> None:
        wait_for(lambda: self.phases(names) == {phase}, timeout, f"{len(names)} pods {names[0]}.. {phase}")

    def delete_pods(self, names: Iterable[str]) -> None:
        for name in names:
            self.api.delete(PODS, name, self.namespace)

    def finish(self, names: Sequence[str]) -> None:
        """End these pods as succeeded."""
        self.kubelet.finish(self.namespace, names)


def _names(items: Iterable[Json]) -> list[str]:
    return [item["metadata"]["name"] for item in items]
