"""Access: identities and their rights, as the API server decides them. All functions raise ApiError."""

from collections.abc import Mapping
from typing import NamedTuple

from extender.api.admission import UserInfo
from extender.api.objects.base import Wire
from extender.domain.admission.access import Subject, subject
from extender.kube.requests import Json, Requests, decoded
from extender.kube.resources import ACCESS_REVIEWS, SELF_ACCESS_REVIEWS, SELF_REVIEWS, TOKEN_REVIEWS, Resource

_PATIENCE = 5.0  # seconds


class Right(NamedTuple):
    """`resource`: its plural. An empty namespace means all, an empty name as well."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """Return the right as the attributes of reviews."""
        return {name: value for name, value in self._asdict().items() if value}

    def __str__(self) -> str:
        resource = "/".join(filter(None, (self.resource, self.subresource)))
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{' ' + self.name if self.name else ''}{where}"


def right_to(verb: str, resource: Resource, namespace: str = "", name: str = "") -> Right:
    return Right(verb, resource.group, resource.plural, "", namespace, name)


class _Verdict(Wire, frozen=True):
    allowed: bool = False


class AccessReview(Wire, frozen=True):
    status: _Verdict = _Verdict()


class _Identified(Wire, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()


class _TokenReview(Wire, frozen=True):
    status: _Identified = _Identified()


class _SelfIdentified(Wire, frozen=True):
    user_info: UserInfo = UserInfo()


class _SelfReview(Wire, frozen=True):
    status: _SelfIdentified = _SelfIdentified()


def access_review(who: Subject, wanted: Mapping[str, str]) -> Json:
    """Return a SubjectAccessReview. `wanted`: its resourceAttributes."""
    spec = {
        "user": who.user,
        "uid": who.uid,
        "groups": who.groups,
        "extra": dict(who.extra),
        "resourceAttributes": wanted,
    }
    return {"apiVersion": ACCESS_REVIEWS.version, "kind": "SubjectAccessReview", "spec": spec}


class AccessApi(Requests):
    def owner_of(self, token: str) -> Subject | None:
        """Return the owner of a bearer token.

        None if it is unknown, or of another audience than the API server.
        """
        review = {"apiVersion": TOKEN_REVIEWS.version, "kind": "TokenReview", "spec": {"token": token}}
        answer = self._post(TOKEN_REVIEWS.path(), review, _PATIENCE)
        found = decoded(answer, _TokenReview, "a token review").status
        return subject(found.user) if found.authenticated and found.user.username else None

    def grants(self, who: Subject, right: Right) -> bool:
        return self._allowed(ACCESS_REVIEWS.path(), access_review(who, right.attributes))

    def grants_me(self, right: Right) -> bool:
        """Return whether the credentials of the connection have the right. All users may ask that."""
        kind = {"apiVersion": SELF_ACCESS_REVIEWS.version, "kind": "SelfSubjectAccessReview"}
        review = {**kind, "spec": {"resourceAttributes": right.attributes}}
        return self._allowed(SELF_ACCESS_REVIEWS.path(), review)

    def my_name(self) -> str:
        """Return the user of the connection.

        Raises:
            NotFound: The API server is older than 1.28.
        """
        review = {"apiVersion": SELF_REVIEWS.version, "kind": "SelfSubjectReview"}
        answer = self._post(SELF_REVIEWS.path(), review, _PATIENCE)
        return decoded(answer, _SelfReview, "a self review").status.user_info.username

    def _allowed(self, path: str, review: Json) -> bool:
        return decoded(self._post(path, review, _PATIENCE), AccessReview, path).status.allowed
