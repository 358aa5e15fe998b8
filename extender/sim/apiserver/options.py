"""The options in the query of a write, and which of them are refused."""

from extender.sim.apiserver.field_errors import (
    FieldErrors,
    forbidden_field,
    not_supported,
    required,
    too_long,
)
from extender.sim.apiserver.status_errors import invalid_object

Query = dict[str, str]
LONGEST_MANAGER = 128
APPLY_PATCH = "application/apply-patch+yaml"
_NAMES = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


def check(method: str, form: str, query: Query) -> None:
    """Raises StatusError 422. `form`: the media type of the body."""
    if method in _NAMES and (errors := [*_errors(method, form, query)]):
        raise invalid_object(_NAMES[method], "meta.k8s.io", "", errors)


def _errors(method: str, form: str, query: Query) -> FieldErrors:
    manager = query.get("fieldManager", "")
    if method == "PATCH" and form == APPLY_PATCH and not manager:
        yield required("fieldManager", "is required for apply patch")
    if method == "PATCH" and form != APPLY_PATCH and "force" in query:
        yield forbidden_field("force", "may not be specified for non-apply patch")
    if len(manager.encode()) > LONGEST_MANAGER:
        yield too_long("fieldManager", LONGEST_MANAGER)
    if query.get("dryRun", "All") != "All":
        yield not_supported("dryRun", [query["dryRun"]], ("All",))
    if query.get("fieldValidation", "") not in _VALIDATIONS:
        yield not_supported("fieldValidation", query["fieldValidation"], _VALIDATIONS)
