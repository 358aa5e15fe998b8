"""Stage of one test: cluster, namespace, simulated kubelets and observer, and methods that scenarios need."""

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
from tests.e2e.harness.waiting import GENEROUS_SECONDS, wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-edit"  # label of ClusterRoles that extend the role edit
VIEW = bool(os.environ.get("MUSTER_E2E_VIEW"))  # True if every scenario uses the scheduler proxy


class Stage:
    """Stage of a test. All programs that the test starts on the stage end with the test."""

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
        """Start a scheduler, such as `start_scheduler("sidecar-gates.yaml", muster=muster.address)`.

        By default, the scheduler has the stock configuration, without Muster.
        """
        scheduler = KubeScheduler(self.cluster, config, **options)
        # pushed before the start, so that a scheduler that never becomes ready is stopped, too
        self.started.push(scheduler)
        scheduler.start(wait=wait)
        return scheduler

    def start_sidecar(self, muster: Muster, /, **options: Any) -> KubeScheduler:
        """Start the scheduler next to Muster. If Muster has a scheduler proxy, the scheduler uses it."""
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
        """Start Muster.

        Args:
            arguments: Arguments of `muster serve`.
            user: User of Muster. With None, Muster finds the cluster as in a pod.
            server: URL of a proxy in front of the API server.
            wait: Whether to wait until Muster is ready.
            view: Whether Muster has a scheduler proxy.
            options: Arguments of `Muster`.
        """
        kubeconfig = self.cluster.kubeconfig(user, server) if user else None
        muster = Muster(self.cluster, kubeconfig, arguments=arguments, view=view, **options)
        self.started.push(muster)
        muster.start(wait=wait)
        return muster

    def policy(self, file: str) -> AbstractContextManager[None]:
        """Apply a policy, as in `with stage.policy("gates/admission-policy.yaml"): ...`.

        The test is skipped on releases of Kubernetes without this kind of policy.
        """
        if self.cluster.kubernetes in WITHOUT_POLICIES:
            pytest.skip(
                f"Kubernetes {self.cluster.kubernetes} has no MutatingAdmissionPolicy unless asked to"
            )
        return in_force(self.api, self.namespace, file)

    def start_controller_manager(self, *flags: str) -> None:
        """Start the controllers of Deployments, Jobs, garbage collection, namespaces, and others."""
        process = self.cluster.start_controller_manager(further_flags=flags)
        self.started.callback(process.kill)

    def grant_edit(self, user: str) -> None:
        """Bind a user to the role edit in the test's namespace.

        First wait until the role has the rights that the manifests add to it.
        """
        controller_manager = self.cluster.start_controller_manager(("clusterrole-aggregation-controller",))
        wait_for(self._has_edit_all_rules, what="the role edit has the rules of all aggregated roles")
        controller_manager.stop()
        manifests.apply_one(self.api, objects.binding("edit", user, namespace=self.namespace))

    def _has_edit_all_rules(self) -> bool:
        """Return whether the role edit has the rules of all roles that extend it."""
        extending_roles = self.api.items(CLUSTER_ROLES, labelSelector=f"{AGGREGATED}=true")
        edit_rules = self.api.get(CLUSTER_ROLES, "edit").get("rules") or []
        rules_of_roles = [role.get("rules") or [] for role in extending_roles]
        return all(rules_of_roles) and all(rule in edit_rules for rule in chain.from_iterable(rules_of_roles))

    def start_operator(self, operator: SigsOperator) -> SigsController:
        """Start a real controller of kubernetes-sigs, which needs kube-controller-manager.

        A test that calls this method has the pytest marker `jobset` or `lws`, so that the program is built
        before the tests.
        """
        return self.started.enter_context(SigsController(self.cluster, operator))

    def start_wire(self, server: str | None = None) -> TcpProxy:
        """Start a TCP proxy whose connections can be cut.

        Its target is `server`, by default the API server.
        """
        return self.started.enter_context(TcpProxy(int((server or self.cluster.server).rpartition(":")[2])))

    def start_verbs_proxy(self, muster: Muster) -> FaultProxy:
        """Start a fault proxy between a scheduler and the port that Muster serves as an extender."""
        return self.started.enter_context(FaultProxy(f"http://{muster.address}"))

    def start_fault_proxy(self, remember: int | None = None) -> FaultProxy:
        """Start a fault proxy in front of the API server.

        `remember` is the number of calls that it records.
        """
        cluster = self.cluster
        proxy = FaultProxy(cluster.server, cluster.certificate, cluster.key, remember)
        return self.started.enter_context(proxy)

    def nodes(self, count: int, *, prefix: str = "n", **options: Any) -> list[str]:
        """Create nodes, and return their names. `nodes(3, cpu="4")` creates n0, n1 and n2."""
        bodies = [objects.node(f"{prefix}{number}", **options) for number in range(count)]
        return _names(self.api.create_many(NODES, bodies))

    def queue(self, name: str, **spec: Any) -> Json:
        return self.api.create(QUEUES, objects.queue(name, **spec))

    def set_queue_state(self, name: str, state: str) -> None:
        """Open or close a queue, and wait until Muster has changed the queue's status.

        Without the wait, Muster might see a new group before the queue's state, since each kind has its own
        watch.
        """
        self.api.patch(QUEUES, name, {"spec": {"state": state}})
        states = {"Open"} if state == "Open" else {"Closing", "Closed"}
        wait_for(
            lambda: self.api.get(QUEUES, name).get("status", {}).get("state") in states,
            what=f"queue {name} is {state}",
        )

    def priority(self, name: str, value: int) -> str:
        """Create a PriorityClass for this test, wait until pods can use it, and return its name."""
        fields = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        self.api.create(PRIORITY_CLASSES, {**fields, "metadata": {"name": name}})
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
        """Create a PodGroup and its pods `name-0`, `name-1`, ..., and return the names of the pods.

        By default, minMember is `size`.
        """
        self.group(name, size if min_member is None else min_member, queue=queue)
        return self.pods(name, size, group=name, **pod)

    def job(self, name: str, **options: Any) -> Json:
        """Create a Job. `options` has arguments for `harness.jobs.job`."""
        return self.jobs.create(name, **options)

    def group(self, name: str, min_member: int, **spec: Any) -> Json:
        """Create a PodGroup without pods. `spec` has arguments for `objects.pod_group`."""
        body = objects.pod_group(name, namespace=self.namespace, min_member=min_member, **spec)
        return self.api.create(POD_GROUPS, body)

    def limit_pods(self, pods: str, *scopes: str) -> None:
        """Create or change a ResourceQuota for pods, together with its status.

        The test writes the status, because the controller of quotas does not run.
        """
        spec, status = {"hard": {"pods": pods}}, {"hard": {"pods": pods}, "used": {"pods": "0"}}
        if self.api.find(RESOURCE_QUOTAS, "limit", self.namespace):
            self.api.patch(RESOURCE_QUOTAS, "limit", {"spec": spec}, self.namespace)
        else:
            metadata = {"name": "limit", "namespace": self.namespace}
            quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
            self.api.create(RESOURCE_QUOTAS, {**quota, "spec": {**spec, "scopes": list(scopes)}})
            self.started.callback(self.api.delete_all, RESOURCE_QUOTAS, self.namespace)
        self.api.patch(RESOURCE_QUOTAS, "limit", {"status": status}, self.namespace, "status")

    def pods(self, name: str, count: int, *, first: int = 0, **options: Any) -> list[str]:
        """Create pods `name-0`, `name-1`, ..., and return their names.

        `first` is the first number. `options` has arguments for `objects.pod`.
        """
        numbers = range(first, first + count)
        bodies = [objects.pod(f"{name}-{number}", namespace=self.namespace, **options) for number in numbers]
        return _names(self.api.create_many(PODS, bodies))

    def pod(self, name: str) -> Json:
        return self.api.get(PODS, name, self.namespace)

    def pod_group(self, name: str) -> Json:
        return self.api.get(POD_GROUPS, name, self.namespace)

    def own_group(self, pod: str) -> str:
        """Return the name of the group that Muster creates for a pod without a group and an owner."""
        return f"podgroup-{self.pod(pod)['metadata']['uid']}"

    def wait_group(self, name: str, **status: Any) -> Json:
        """Wait until a PodGroup exists and its status has these values. Return the PodGroup.

        Example: `wait_group("a", phase="Running", running=3)`.
        """

        def group_with_status() -> Json | None:
            podgroup = self.api.find(POD_GROUPS, name, self.namespace)
            return podgroup if podgroup and status.items() <= podgroup.get("status", {}).items() else None

        podgroup = wait_for(group_with_status, what=f"PodGroup {name} {status}")
        assert podgroup is not None
        return podgroup

    def reason(self, group: str) -> str:
        """Return the reason of a PodGroup's condition Scheduled, or "" without this condition."""
        conditions = self.pod_group(group).get("status", {}).get("conditions", [])
        return next((condition["reason"] for condition in conditions if condition["type"] == "Scheduled"), "")

    def message(self, group: str) -> str:
        """Return the message of a PodGroup's condition Scheduled, or "" without this condition."""
        conditions = self.pod_group(group).get("status", {}).get("conditions") or []
        return next(
            (condition.get("message", "") for condition in conditions if condition["type"] == "Scheduled"), ""
        )

    def wait_reason(self, group: str, *reasons: str, timeout: float = GENEROUS_SECONDS) -> str:
        """Wait until a PodGroup's condition Scheduled has one of these reasons, and return the reason."""

        def expected_reason() -> str | None:
            reason = self.reason(group)
            return reason if reason in reasons else None

        try:
            return str(wait_for(expected_reason, timeout))
        except TimeoutError:
            description = f"{group} has {self.reason(group)!r}, never one of {reasons}"
            raise TimeoutError(f"{description}: {self.pod_group(group).get('status')}") from None

    def first_with_reason(self, groups: Iterable[str], reason: str) -> str:
        """Return the first PodGroup whose condition Scheduled gets this reason."""
        names = list(groups)

        def groups_with_reason() -> list[str]:
            return [name for name in names if self.reason(name) == reason]

        return wait_for(groups_with_reason, what=f"one of {names} says {reason}")[0]

    def phases(self, names: Iterable[str]) -> set[str]:
        """Return the set of the phases of these pods. The phase of a deleted pod is "Gone"."""
        phase_by_name = {
            pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.api.items(PODS, self.namespace)
        }
        return {phase_by_name.get(name, "Gone") for name in names}

    def running(self, gangs: Mapping[str, Iterable[str]]) -> list[str]:
        """Return the names of the gangs whose pods all run.

        `gangs` has the names of the pods of each gang.
        """
        return [name for name, pods in gangs.items() if self.phases(pods) == {"Running"}]

    def bound(self, names: Iterable[str]) -> dict[str, str]:
        """Return the nodes of the bound pods among these pods, keyed by pod."""
        requested_names = set(names)
        pods = [
            pod for pod in self.api.items(PODS, self.namespace) if pod["metadata"]["name"] in requested_names
        ]
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]}

    def wait_bound(self, names: Sequence[str], timeout: float = GENEROUS_SECONDS) -> dict[str, str]:
        """Wait until all these pods are bound, and return their nodes, keyed by pod."""

        def nodes_if_all_bound() -> dict[str, str] | None:
            nodes_by_pod = self.bound(names)
            return nodes_by_pod if len(nodes_by_pod) == len(names) else None

        nodes = wait_for(nodes_if_all_bound, timeout, f"{len(names)} pods {names[0]}.. bound")
        assert nodes is not None
        return nodes

    def wait_phase(
        self, names: Sequence[str], phase: str = "Running", timeout: float = GENEROUS_SECONDS
    ) -> None:
        wait_for(lambda: self.phases(names) == {phase}, timeout, f"{len(names)} pods {names[0]}.. {phase}")

    def delete_pods(self, names: Iterable[str]) -> None:
        for name in names:
            self.api.delete(PODS, name, self.namespace)

    def finish(self, names: Sequence[str]) -> None:
        """End these pods in the phase Succeeded."""
        self.kubelet.finish(self.namespace, names)


def _names(items: Iterable[Json]) -> list[str]:
    return [item["metadata"]["name"] for item in items]
