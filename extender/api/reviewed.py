"""Objects under admission review, with the fields that matter only when an object is written.

The watches keep a hundred thousand objects; fields that only admission reads are not kept with them.
"""

from extender.api.objects.base import Meta, OwnerReference, Wire
from extender.api.objects.groups import PodGroup, PodGroupSpec
from extender.api.objects.pods import Pod, PodSpec


class NewPodSpec(PodSpec, frozen=True):
    service_account_name: str = ""


class NewPod(Pod, frozen=True):
    spec: NewPodSpec = NewPodSpec()

    @property
    def controller(self) -> OwnerReference | None:
        return next((each for each in self.metadata.owner_references or () if each.controller), None)


class Topology(Wire, frozen=True):
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroup(Wire, frozen=True):
    network_topology: Topology | None = None


class NewPodGroupSpec(PodGroupSpec, frozen=True):
    network_topology: Topology | None = None
    sub_group_policy: list[SubGroup] | None = None


class NewPodGroup(PodGroup, frozen=True):
    spec: NewPodGroupSpec = NewPodGroupSpec()


class NewOtherGroup(Wire, frozen=True):
    """A PodGroup of scheduler-plugins or of Kubernetes itself: its queue is an annotation or a label."""

    metadata: Meta


class PodTemplate(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: NewPodSpec = NewPodSpec()


class JobSpec(Wire, frozen=True):
    template: PodTemplate = PodTemplate()


class Job(Wire, frozen=True):
    """batch/v1."""

    metadata: Meta
    spec: JobSpec = JobSpec()

    @property
    def pod(self) -> NewPod:
        """What each of its pods will look like, as far as queues are concerned."""
        template = self.spec.template
        meta = Meta(
            namespace=self.metadata.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
        )
        return NewPod(meta, template.spec)


class VolcanoJobSpec(Wire, frozen=True):
    queue: str = ""
    scheduler_name: str = ""


class VolcanoJob(Wire, frozen=True):
    """batch.volcano.sh/v1alpha1."""

    metadata: Meta
    spec: VolcanoJobSpec = VolcanoJobSpec()
