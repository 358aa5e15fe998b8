"""Bench of the tests of PodGroup statuses: an API server's PodGroups, their watch, and the writers."""

from typing import Any

import msgspec
from msgspec.structs import replace

from extender.api.objects.base import merged
from extender.api.objects.queues import PodGroup, PodGroupStatus
from extender.controllers.estimates import Estimates
from extender.controllers.events import StartChanges
from extender.controllers.objects import ObjectStore
from extender.controllers.podgroup_status import PodGroupStatusController
from extender.controllers.provisioning import ProvisioningRequests
from extender.domain.model.records import GroupKey
from extender.kube.errors import Conflict
from tests.controllers.bench import Bench
from tests.domain.builders import foreign_pod, node
from tests.domain.world import gang, key


class PodGroupBench(Bench):
    """Bench with the API server's copy of each PodGroup, which reaches the ledger by `show`.

    `unexplained`: the reporter writes no explanations of waits.
    """

    def __init__(self, *objects: Any, unexplained: bool = True) -> None:
        self.copies: dict[str, PodGroup] = {}
        super().__init__(*objects)
        self.store: ObjectStore[GroupKey, PodGroup] = ObjectStore()
        self.provisioning = ProvisioningRequests()
        self.start_changes = StartChanges(0 if unexplained else 2000)
        context = self.means()
        self.estimates = Estimates(context.ledger, context.leads, context.clock, read_cpu=lambda: 0.0)
        self.reporter = PodGroupStatusController(
            context, self.store, self.provisioning, self.start_changes, self.estimates
        )
        self.api.patched = self._apply_patch
        for name in self.copies:
            self.show(name)

    def add(self, *objects: Any) -> "PodGroupBench":
        super().add(*objects)
        for obj_or_list in objects:
            for obj in obj_or_list if isinstance(obj_or_list, list) else [obj_or_list]:
                if isinstance(obj, PodGroup):
                    self.copies[obj.metadata.name] = versioned(obj, 1)
        return self

    def show(self, name: str) -> None:
        """Deliver the API server's copy of a PodGroup, as by the watch."""
        self.store.put(key(name), self.copies[name])
        self.ledger.intake.set_group(self.copies[name])

    def look(self) -> list[dict[str, Any]]:
        """Update the statuses once; return the sent patches, whose objects the watch delivers."""
        before, self.api.calls = dict(self.copies), []
        self.reporter.on_decisions(self.decisions)
        self.flush()
        for name, copy in self.copies.items():
            if copy is not before[name]:
                self.show(name)
        return [patch for _, patch in self.api.done("patch")]

    def _apply_patch(self, name: str, patch: dict[str, Any]) -> PodGroup:
        """Apply a patch to the API server's copy. Raises Conflict if it was made for another version."""
        copy = self.copies[name]
        if patch["metadata"]["resourceVersion"] != copy.metadata.resource_version:
            raise Conflict(409, "Conflict")
        version = int(copy.metadata.resource_version) + 1
        annotations = (copy.metadata.annotations or {}) | patch["metadata"].get("annotations", {})
        self.copies[name] = versioned(
            replace(
                copy,
                metadata=replace(
                    copy.metadata,
                    annotations={key: text for key, text in annotations.items() if text is not None},
                ),
                status=msgspec.convert(
                    merged(msgspec.to_builtins(copy.status), patch["status"]), PodGroupStatus
                ),
            ),
            version,
        )
        return self.copies[name]


def versioned(group: PodGroup, version: int) -> PodGroup:
    return replace(group, metadata=replace(group.metadata, resource_version=str(version)))


def crowd(groups: int) -> list[Any]:
    """Return a node and gangs that lack capacity, whose messages name the free amount."""
    return [
        node("a", cpu="4"),
        *(gang(f"g{n}", 4) for n in range(groups)),
        foreign_pod("s", on="a", cpu="500m"),
    ]


def requeue_changed(bench: PodGroupBench, second: int) -> None:
    """Replace a foreign pod by one of another size, which changes the messages of all groups."""
    bench.advance(1.0)
    if second:
        bench.delete(f"other-{second - 1}")
    bench.add(foreign_pod(f"other-{second}", on="a", cpu=f"{100 + 10 * (second % 40)}m")).settle()
