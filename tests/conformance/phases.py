"""The phases that Muster writes to PodGroups, told by the reporter itself to an API server of a few lines."""

from collections.abc import Hashable, Iterable
from typing import Any

from extender.api.objects import Meta, PodGroup
from extender.controllers.controller import ControllerContext
from extender.controllers.podgroup_status import PodGroupStatusController
from extender.kube.writers import Ended, Job, Writers
from tests.controllers.api import Api
from tests.domain.world import World


class _AtOnce(Writers):
    """Writers without threads."""

    def __init__(self) -> None:
        pass

    def submit(self, key: Hashable, job: Job, ended: Ended = lambda fault: None) -> None:
        job()


class _Phases(Api):
    def __init__(self, groups: Iterable[PodGroup]) -> None:
        super().__init__()
        self.of = {f"{each.metadata.namespace}/{each.metadata.name}": each.status.phase for each in groups}

    def patch_group(
        self, namespace: str, name: str, uid: str, patch: dict[str, Any], timeout: float = 10
    ) -> PodGroup:
        self.of[f"{namespace}/{name}"] = patch["status"]["phase"]
        return PodGroup(Meta(name=name, namespace=namespace))


def phases(world: World, groups: Iterable[PodGroup]) -> dict[str, str]:
    """Each group's phase after the decisions of `world` were written."""
    groups = list(groups)
    api = _Phases(groups)
    reporter = PodGroupStatusController(
        ControllerContext(world.ledger, api, _AtOnce(), lambda: True, lambda: world.now)
    )
    for each in groups:
        reporter.see(each)
    reporter.look(world.decisions)
    return api.of
