"""Queues and PodGroups as the API server has them, with what commands read off them."""

from extender.api.conditions import condition
from extender.api.keys import QUOTA_SOURCE, SCHEDULED
from extender.api.objects.base import Condition, OwnerReference
from extender.api.objects.groups import PodGroup
from extender.api.objects.queues import Queue
from extender.cli.owner_kinds import job_row
from extender.domain.model.pod_owners import group_name_of
from extender.domain.model.reasons import Reason
from extender.domain.quotas.steps import entering


class ObservedQueue(Queue, frozen=True):
    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def state(self) -> str:
        """What the status says, else what will be."""
        return self.status.state or self.spec.state or "Open"

    @property
    def quota(self) -> str:
        """The quota that it is made from, or empty."""
        return (self.metadata.annotations or {}).get(QUOTA_SOURCE, "")

    @property
    def entering(self) -> list[str]:
        """The namespaces that a quota lets enter it."""
        return entering(self.metadata.annotations)

    @property
    def share(self) -> float:
        return self.status.share or 0.0

    @property
    def has_fault(self) -> bool:
        """Whether its own specification is invalid."""
        found = condition(self.status.conditions, "Valid")
        return found is not None and found.status == "False"

    @property
    def counts(self) -> dict[str, int]:
        """Its groups by how they fare. A count that is not written yet is shown as 0."""
        status = self.status
        return {
            "pending": status.pending or 0,
            "inqueue": status.inqueue or 0,
            "running": status.running or 0,
            "unknown": status.unknown or 0,
            "completed": status.completed or 0,
            "failed": status.failed or 0,
            "aborted": status.aborted or 0,
        }


class ObservedGroup(PodGroup, frozen=True):
    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_automatic(self) -> bool:
        """Whether Muster made it for pods that name no group."""
        owners = self.metadata.owner_references or ()
        return self.name in {group_name_of(owner.uid) for owner in owners}

    @property
    def job(self) -> OwnerReference | None:
        """The job that it stands for; None for another group."""
        owners = (
            each for each in self.metadata.owner_references or () if self.name == group_name_of(each.uid)
        )
        return next((each for each in owners if job_row(each.api_version, each.kind)), None)

    @property
    def scheduled(self) -> Condition | None:
        """The condition that says whether the group may start, and why not."""
        return condition(self.status.conditions, SCHEDULED)

    @property
    def course(self) -> str:
        """The phase, but Pending for a group that lacks members: Inqueue tells its operator to make them."""
        phase, found = self.status.phase, self.scheduled
        lacks = found is not None and found.reason == Reason.NOT_ENOUGH_MEMBERS
        return "Pending" if lacks and phase == "Inqueue" else phase
