"""What a user, or an account, may do: asked of the API server, which alone knows."""

from typing import NamedTuple

from extender.kube.editor import Editor, Json
from extender.kube.resources import SELF_ACCESS_REVIEWS, Resource


class Right(NamedTuple):
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = "/".join(filter(None, (self.resource, self.subresource)))
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{' ' + self.name if self.name else ''}{where}"


def right_to(verb: str, resource: Resource, namespace: str = "", name: str = "") -> Right:
    return Right(verb, resource.group, resource.plural, "", namespace, name)


def i_may(editor: Editor, right: Right) -> bool:
    """Whether the user of this connection has the right. Raises ApiError."""
    spec: Json = {"resourceAttributes": right._asdict()}
    head = {"apiVersion": SELF_ACCESS_REVIEWS.version, "kind": "SelfSubjectAccessReview"}
    return _allowed(editor.review(SELF_ACCESS_REVIEWS.path(), {**head, "spec": spec}))


def _allowed(review: Json) -> bool:
    return bool(review["status"].get("allowed"))
