"""AdmissionReview v1: the API server's request to a webhook, the webhook's answer, and the reviewed objects.

The objects here have fields that matter only when a user writes the object; watches do not keep these
fields. The objects of a review stay undecoded until the rules for their kind are known.
"""

import msgspec

from extender.api.objects.base import Meta, OwnerReference, Wire
from extender.api.objects.pods import Pod, PodSpec

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
RESIZE = "resize"  # the subresource of a pod that changes the requests of a running pod


class UserInfo(Wire, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class GroupKind(Wire, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class ReviewRequest(Wire, frozen=True):
    """AdmissionReview request.

    `name` is empty for an object with generateName. `object` is null on a deletion.
    """

    uid: str
    operation: str
    kind: GroupKind = GroupKind()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class Review(Wire, frozen=True):
    api_version: str
    kind: str
    request: ReviewRequest


class Cause(Wire, frozen=True):
    """Cause of a refusal: a code for programs, the path of the field, and a message for users."""

    reason: str
    field: str
    message: str


class Details(Wire, frozen=True):
    causes: list[Cause] = []
    retry_after_seconds: int = 0


class Status(Wire, frozen=True):
    """Status that the API server returns to the user after a refusal."""

    code: int
    reason: str
    message: str
    details: Details = Details()


class ReviewResponse(Wire, frozen=True, omit_defaults=True):
    """AdmissionReview response.

    `patch` is a JSON patch as bytes; the encoder writes it in base64.
    """

    uid: str
    allowed: bool
    status: Status | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None


class ReviewAnswer(Wire, frozen=True, omit_defaults=False):
    response: ReviewResponse
    api_version: str = API_VERSION
    kind: str = KIND


review_decoder = msgspec.json.Decoder(Review)
encode = msgspec.json.Encoder().encode


class NewPodSpec(PodSpec, frozen=True):
    service_account_name: str = ""


class NewPod(Pod, frozen=True):
    spec: NewPodSpec = NewPodSpec()

    @property
    def controller(self) -> OwnerReference | None:
        return next((owner for owner in self.metadata.owner_references or () if owner.controller), None)


class AnyObject(Wire, frozen=True):
    metadata: Meta


class NewOtherGroup(Wire, frozen=True):
    """PodGroup of scheduler-plugins or of Kubernetes: its queue is an annotation or a label."""

    metadata: Meta


class PodTemplate(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: NewPodSpec = NewPodSpec()


class JobSpec(Wire, frozen=True):
    suspend: bool = False
    template: PodTemplate = PodTemplate()


class Job(Wire, frozen=True):
    """Job of batch/v1."""

    metadata: Meta
    spec: JobSpec = JobSpec()

    @property
    def pod(self) -> NewPod:
        """Return a pod of the job, with the fields that decide its queue."""
        namespace, template = self.metadata.namespace, self.spec.template
        labels, annotations = template.metadata.labels, template.metadata.annotations
        return NewPod(Meta(namespace=namespace, labels=labels, annotations=annotations), template.spec)
