"""What the API server says when it does not do what it was asked for: a status and a Status object."""

from collections.abc import Sequence

from extender.sim.apiserver.kinds import Json, ResourceKind


class StatusError(Exception):
    def __init__(self, code: int, reason: str, message: str, fields: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.fields = tuple(fields)

    def status(self) -> Json:
        """The body of the answer."""
        causes = [{"reason": "FieldValueInvalid", "field": field} for field in self.fields]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": {"causes": causes} if causes else {},
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
    return StatusError(422, "Invalid", f'{kind.name} "{name}" is invalid: {field}: {why}', [field])


def forbidden(kind: ResourceKind, name: str, why: str) -> StatusError:
    return StatusError(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}')


def bad_request(why: str) -> StatusError:
    return StatusError(400, "BadRequest", why)


def expired(version: int) -> StatusError:
    return StatusError(410, "Expired", f"too old resource version: {version}")


def unsupported(what: str) -> StatusError:
    return StatusError(
        415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {what}"
    )
