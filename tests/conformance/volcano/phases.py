"""Phases that Muster's controller writes to PodGroups at a minimal API server."""

from collections.abc import Iterable
from typing import Any

from extender.api.objects.base import Meta
from extender.api.objects.queues import PodGroup
from extender.controllers.controller import ControllerContext
from extender.controllers.estimates import Estimates
from extender.controllers.events import StartChanges
from extender.controllers.objects import ObjectStore
from extender.controllers.podgroup_status import PodGroupStatusController
from extender.controllers.provisioning import ProvisioningRequests
from extender.domain.model.records import GroupKey
from tests.controllers.api import Api
from tests.controllers.bench import AtOnce
from tests.domain.world import World


class _Phases(Api):
    def __init__(self, groups: Iterable[PodGroup]) -> None:
        super().__init__()
        self.by_group = {
            f"{group.metadata.namespace}/{group.metadata.name}": group.status.phase for group in groups
        }

    def patch_group(
        self, namespace: str, name: str, uid: str, patch: dict[str, Any], timeout: float = 10
    ) -> PodGroup:
        self.by_group[f"{namespace}/{name}"] = patch["status"]["phase"]
        return PodGroup(Meta(name=name, namespace=namespace))


def phases(world: World, groups: Iterable[PodGroup]) -> dict[str, str]:
    """Return each group's phase after the decisions of `world` were written."""
    groups = list(groups)
    api = _Phases(groups)
    context = ControllerContext(world.ledger, api, AtOnce(), lambda: True, lambda: world.now)
    copies: ObjectStore[GroupKey, PodGroup] = ObjectStore()
    estimates = Estimates(context.ledger, context.leads)
    reporter = PodGroupStatusController(context, copies, ProvisioningRequests(), StartChanges(), estimates)
    for group in groups:
        copies.put(GroupKey(f"{group.metadata.namespace}/{group.metadata.name}"), group)
    reporter.on_decisions(world.decisions)
    return api.by_group
