"""Minimal stock scheduler: it filters and binds each pod with a nominated node."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from extender.api.objects.pods import Pod
from extender.domain.ledger.claims import Claim
from extender.domain.model.records import Uid
from tests.domain.world import World

Binds = dict[Uid, str]


def schedule(world: World, pods: Iterable[Pod]) -> Binds:
    """Bind the planned pods until Muster plans no more; return the node of each bound pod."""
    by_uid = {Uid(pod.metadata.uid): pod for pod in pods}
    bound: Binds = {}
    while binds := _one_cycle(world.settle(), by_uid):
        bound |= binds
    return bound


def _one_cycle(world: World, pods: dict[Uid, Pod]) -> Binds:
    bound: Binds = {}
    for claim in world.ledger.claims_to_release():
        for posted in _bind(world, pods[claim.pod.uid], claim):
            uid = posted.pod.uid
            world.add(_bound_pod(pods[uid], posted.node))
            bound[uid] = posted.node
    return bound


def _bind(world: World, pod: Pod, planned: Claim) -> Sequence[Claim]:
    """Filter and bind one pod; return the claims whose bindings may be posted then."""
    uid = planned.pod.uid
    world.add(replace(pod, spec=replace(pod.spec, scheduling_gates=None)))
    answer = world.ledger.assumed_pods.assume(uid, list(world.nodes))
    if not isinstance(answer, list):
        return ()
    node = planned.node if planned.node in answer else answer[0]
    refused = world.ledger.assumed_pods.hold(uid, node, token=1)
    return () if refused else world.ledger.assumed_pods.confirm(planned.pod.group).claims_to_post


def _bound_pod(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, scheduling_gates=None, node_name=node))
