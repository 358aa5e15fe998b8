"""What is wrong with one field, in the words of Kubernetes (package field of k8s.io/apimachinery)."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class FieldError(NamedTuple):
    """`reason`: for machines, as in the causes of a Status. `message`: what people read after the field."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


FieldErrors = Iterator[FieldError]


def wrong(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}")


def wrong_as_stated(field: str, detail: str) -> FieldError:
    """As rules in CEL say it of a whole object, whose value is not shown."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {detail}")


def not_found_field(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueNotFound", f"Not found: {_shown(value)}")


def wrong_type(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, "FieldValueTypeInvalid", f"Invalid value: {_shown(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(
        field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value"
    )


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    allowed = ", ".join(json.dumps(each) for each in supported)
    message = f"Unsupported value: {_shown(value)}: supported values: {allowed}"
    return FieldError(field, "FieldValueNotSupported", message)


def too_long(field: str, longest: int, unit: str = "bytes") -> FieldError:
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {longest} {unit}")


def joined_errors(errors: Iterable[FieldError]) -> str:
    """One as it is, several in brackets; the same is said once."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list | str):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
