"""Verbs of the extender. filter and prioritize answer from memory at once; bind and preempt may wait.

A refusal is an answer, not an error. It names one of the offered nodes, with the constant message of the
reason. The scheduler treats all other nodes as "unresolvable", and preempts no pods there. A request alone
does not prove that its pod exists: the pod waits until the watch has shown it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from extender.api import protocol
from extender.api.objects.pods import Pod
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import refusal
from extender.domain.model.records import Uid
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError, NotFound, Unreachable
from extender.ports.connection import Caller
from extender.telemetry import metrics
from extender.verbs import barrier as refusals
from extender.verbs.barrier import Barrier

_NULL = msgspec.Raw(b"null")
_MAX_SCORE = 10
_THREAD_COUNT = 8
_TIMEOUT = 1.0  # seconds; the scheduler waits three seconds for the answer to preempt
_LOOKUP_TIMEOUT = 2.0  # seconds, including the wait for a thread


class Lookups:
    """Look-ups of pods at the API server, with a timeout.

    The look-ups use only a few threads, which limits the number of concurrent requests.
    """

    def __init__(self, cluster: ApiClient) -> None:
        self._cluster = cluster
        self._threads = ThreadPoolExecutor(_THREAD_COUNT, "lookup")

    async def pod(self, namespace: str, name: str) -> Pod:
        """Return the pod from the API server.

        Raises:
            ApiError: The pod cannot be read.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_LOOKUP_TIMEOUT):
                return await loop.run_in_executor(self._threads, self._cluster.pod, namespace, name, _TIMEOUT)
        except TimeoutError:
            raise Unreachable from None


class SchedulerVerbs:
    def __init__(self, ledger: Ledger, barrier: Barrier, cluster: ApiClient) -> None:
        self._ledger = ledger
        self._barrier = barrier
        self._lookups = Lookups(cluster)

    def filter(self, args: protocol.ExtenderArgs) -> protocol.FilterResult:
        """Answer with the nodes on which the pod may start, or with the reason why it may not start."""
        self._ledger.record_scheduler_call()
        offered_nodes = _unless_null(args.node_names)
        if self._ledger.pods.is_unmanaged(args.pod.spec.scheduler_name):
            metrics.record_refusal()
            if offered_nodes is None:
                return protocol.FilterResult(error=refusals.LEFT_TO_VOLCANO)
            return _unresolvable(refusals.LEFT_TO_VOLCANO, protocol.NodeNames(offered_nodes))
        if not self._ledger.pods.owns(args.pod):
            return protocol.FilterResult(nodes=_unless_null(args.nodes), node_names=offered_nodes)
        if offered_nodes is None and _unless_null(args.nodes):
            return protocol.FilterResult(error=refusals.NODE_CACHE_NEEDED)
        if offered_nodes is None:
            return protocol.FilterResult(node_names=[])
        nodes = protocol.NodeNames(offered_nodes)
        answer = self._ledger.assumed_pods.assume(Uid(args.pod.metadata.uid), nodes)
        if isinstance(answer, list):
            return protocol.FilterResult(node_names=answer)
        metrics.record_refusal(answer)
        return _unresolvable(refusal(answer), nodes)

    def prioritize(self, args: protocol.ExtenderArgs) -> list[protocol.HostPriority]:
        """Score the nodes for a member pod. A node that would be fuller with the pod has a higher score.

        Other pods get no scores.
        """
        if not self._ledger.pods.owns(args.pod) or _unless_null(args.node_names) is None:
            return []
        nodes = protocol.NodeNames(args.node_names)
        fullness = self._ledger.assumed_pods.fullness(Uid(args.pod.metadata.uid), nodes)
        return [protocol.HostPriority(node, round(share * _MAX_SCORE)) for node, share in fullness.items()]

    async def bind(self, args: protocol.BindingArgs, caller: Caller) -> protocol.BindingResult:
        self._ledger.record_scheduler_call()
        error = await self._bind(args, caller)
        if error:
            metrics.record_refusal()
        return protocol.BindingResult(error)

    async def preempt(self, args: protocol.PreemptionArgs) -> protocol.PreemptionResult:
        """Return the allowed preemptions: none for member pods, and none that breaks a gang or its start."""
        if self._ledger.pods.owns(args.pod) or self._ledger.pods.is_unmanaged(args.pod.spec.scheduler_name):
            return protocol.PreemptionResult({})
        candidates = args.node_name_to_meta_victims
        if candidates is None:  # the scheduler has sent whole pods
            candidates = {}
            for node, whole_pods in (args.node_name_to_victims or {}).items():
                victims = [protocol.Victim(pod.metadata.uid) for pod in whole_pods.pods or ()]
                candidates[node] = protocol.MetaVictims(victims, whole_pods.num_pdb_violations)
        meta = args.pod.metadata
        uid, is_known = Uid(meta.uid), self._ledger.pods.get(Uid(meta.uid)) is not None
        if not is_known:  # the scheduler's watch may be ahead of Muster's watch
            with suppress(ApiError):
                is_known = (await self._lookups.pod(meta.namespace, meta.name)).metadata.uid == uid
        victim_uids = {node: [Uid(pod.uid) for pod in each.pods or ()] for node, each in candidates.items()}
        allowed = self._ledger.preemptions.grant_nodes(uid, victim_uids, is_known)
        return protocol.PreemptionResult({node: candidates[node] for node in candidates if node in allowed})

    async def _bind(self, args: protocol.BindingArgs, caller: Caller) -> str:
        """Bind a pod once its group may start; return an error for the scheduler, empty for success."""
        pod = self._ledger.pods.get(Uid(args.pod_uid))
        if pod is None:
            return await self._why_unknown(args)
        if (pod.namespace, pod.name) != (args.pod_namespace, args.pod_name):
            return refusals.ANOTHER_UID
        if pod.node:
            return refusals.ALREADY_BOUND
        if self._ledger.pods.is_unmanaged(pod.scheduler):
            return refusals.LEFT_TO_VOLCANO
        if not pod.group:
            return refusals.NOT_OURS
        if not self._ledger.claims.capacity.has_node(args.node):
            return refusals.UNKNOWN_NODE
        if not self._ledger.is_suitable(pod, args.node):
            return refusals.UNSUITABLE_NODE
        return await self._barrier.pass_through(pod, args.node, caller)

    async def _why_unknown(self, args: protocol.BindingArgs) -> str:
        """Return why a bind call is refused for a pod that no watch has shown.

        The pod is read only for the message. It has no claim, and a request alone never creates a claim.
        """
        try:
            stored_pod = await self._lookups.pod(args.pod_namespace, args.pod_name)
        except NotFound:
            return refusals.POD_GONE
        except ApiError:
            return refusals.UNREADABLE
        if stored_pod.metadata.uid != args.pod_uid:
            return refusals.ANOTHER_UID
        return refusals.ALREADY_BOUND if stored_pod.spec.node_name else refusals.NOT_SEEN


def _unless_null(value: msgspec.Raw) -> msgspec.Raw | None:
    """Return a value; None for null in JSON."""
    return None if value == _NULL else value


def _unresolvable(message: str, nodes: Sequence[str]) -> protocol.FilterResult:
    """Return an answer without nodes, which names only the first offered node with the message."""
    refusal_by_node = dict.fromkeys(nodes[:1], message)
    return protocol.FilterResult(node_names=[], failed_and_unresolvable_nodes=refusal_by_node)
