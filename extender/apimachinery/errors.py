"""Errors of an API server: the Status of an answer, and the errors of fields.

The texts follow Kubernetes (package field of k8s.io/apimachinery).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from extender.apimachinery.kinds import Json, ResourceKind


class FieldError(NamedTuple):
    """Error of a field. `reason` is a code for programs, `message` the text after the field's path."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


FieldErrors = Iterator[FieldError]


def bad_value(field: str, value: Any, detail: str, reason: str = "FieldValueInvalid") -> FieldError:
    return FieldError(field, reason, f"Invalid value: {_json(value)}: {detail}")


def invalid_whole_value(field: str, detail: str) -> FieldError:
    """Return the error of a CEL rule on a whole object. Its text does not repeat the object."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {detail}")


def not_found_field(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueNotFound", f"Not found: {_json(value)}")


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_json(value)}")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    choices = ", ".join(json.dumps(choice) for choice in supported)
    message = f"Unsupported value: {_json(value)}: supported values: {choices}"
    return FieldError(field, "FieldValueNotSupported", message)


def too_long(field: str, longest: int) -> FieldError:
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {longest} bytes")


def too_many(field: str, count: int, maximum: int) -> FieldError:
    return FieldError(field, "FieldValueTooMany", f"Too many: {count}: must have at most {maximum} items")


def _json(value: Any) -> str:
    if isinstance(value, dict | list | str):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


class StatusError(Exception):
    """Error that is answered as a Status.

    `details` has the object's name and kind, and the causes: reason, message and field of each.
    """

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def status(self) -> Json:
        """Return the Status object for the body of the answer."""
        head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        fault = {"message": self.message, "reason": self.reason, "details": self.details}
        return {**head, **fault, "code": self.code}


def not_found(kind: ResourceKind, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{kind.qualified} "{name}" not found', _status_details(kind, name))


def no_such_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: ResourceKind, name: str) -> StatusError:
    message = f'{kind.qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _status_details(kind, name))


def conflict(kind: ResourceKind, name: str, reason: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {reason}'
    return StatusError(409, "Conflict", message, _status_details(kind, name))


def _status_details(kind: ResourceKind, name: str) -> Json:
    return {"name": name, "kind": kind.plural, **({"group": kind.group} if kind.group else {})}


def invalid(kind: ResourceKind, name: str, errors: Sequence[FieldError]) -> StatusError:
    return invalid_object(kind.name, kind.group, name, errors)


def invalid_object(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Return the error for an invalid object, or for invalid options of a request."""
    causes = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    qualified_kind = f"{kind}.{group}" if group else kind
    details = {"name": name, "group": group, "kind": kind, "causes": causes}
    texts = list(dict.fromkeys(map(str, errors)))
    reasons = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return StatusError(422, "Invalid", f'{qualified_kind} "{name}" is invalid: {reasons}', details)


def forbidden(kind: ResourceKind, name: str, reason: str) -> StatusError:
    message = f'{kind.qualified} "{name}" is forbidden: {reason}'
    return StatusError(403, "Forbidden", message, _status_details(kind, name))


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


BODIES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


def unsupported(accepted: Sequence[str] = BODIES) -> StatusError:
    message = "the body of the request was in an unknown format - accepted media types include: "
    return StatusError(415, "UnsupportedMediaType", message + ", ".join(accepted))
