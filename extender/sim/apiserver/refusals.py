"""What the API server says when it does not do what it was asked for: a status and a Status object."""

from collections.abc import Sequence

from extender.sim.apiserver.kinds import Json, Kind


class Refusal(Exception):
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


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{kind.qualified} "{name}" not found')


def no_such_path(path: str) -> Refusal:
    return Refusal(404, "NotFound", f"the server could not find the requested resource: {path}")


def exists(kind: Kind, name: str) -> Refusal:
    return Refusal(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists')


def conflict(kind: Kind, name: str, why: str) -> Refusal:
    told = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return Refusal(409, "Conflict", told)


def invalid(kind: Kind, name: str, field: str, why: str) -> Refusal:
    return Refusal(422, "Invalid", f'{kind.name} "{name}" is invalid: {field}: {why}', [field])


def forbidden(kind: Kind, name: str, why: str) -> Refusal:
    return Refusal(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}')


def bad_request(why: str) -> Refusal:
    return Refusal(400, "BadRequest", why)


def expired(version: int) -> Refusal:
    return Refusal(410, "Expired", f"too old resource version: {version}")


def unsupported(what: str) -> Refusal:
    return Refusal(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {what}")
