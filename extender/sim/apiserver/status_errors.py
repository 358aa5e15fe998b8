"""What the API server says when it does not do what it was asked for: a status and a Status object."""

from collections.abc import Sequence

from extender.sim.apiserver.kinds import Json, ResourceKind


class StatusError(Exception):
    """`causes`: what in particular is wrong, each with reason, message and field, as in a Status."""

    def __init__(self, code: int, reason: str, message: str, causes: Sequence[Json] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = list(causes)

    def status(self) -> Json:
        """The body of the answer."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": {"causes": self.causes} if self.causes else {},
            "code": self.code,
        }


def not_found(kind: ResourceKind, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{kind.qualified} "{name}" not found')


def no_such_path(path: str) -> StatusError:
    return StatusError(404, "NotFound", f"the server could not find the requested resource: {path}")


def exists(kind: ResourceKind, name: str) -> StatusError:
    return StatusError(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists')


def conflict(kind: ResourceKind, name: str, why: str) -> StatusError:
    told = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", told)


def invalid(kind: ResourceKind, name: str, field: str, why: str) -> StatusError:
    causes = [{"reason": "FieldValueInvalid", "message": why, "field": field}]
    return StatusError(422, "Invalid", f'{kind.name} "{name}" is invalid: {field}: {why}', causes)


def forbidden(kind: ResourceKind, name: str, why: str) -> StatusError:
    return StatusError(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}')


def bad_request(why: str) -> StatusError:
    return StatusError(400, "BadRequest", why)


def expired(version: int) -> StatusError:
    return StatusError(410, "Expired", f"too old resource version: {version}")


def unsupported() -> StatusError:
    return _unsupported(_READ)


def unsupported_patch(strategic_known: bool) -> StatusError:
    return _unsupported([form for form in _PATCHES if strategic_known or "strategic" not in form])


_READ = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_PATCHES = (
    *("application/json-patch+json", "application/merge-patch+json"),
    *("application/strategic-merge-patch+json", "application/apply-patch+yaml"),
)


def _unsupported(accepted: Sequence[str]) -> StatusError:
    told = f"accepted media types include: {', '.join(accepted)}"
    message = f"the body of the request was in an unknown format - {told}"
    return StatusError(415, "UnsupportedMediaType", message)
