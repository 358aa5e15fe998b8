"""Which namespaces a queue takes groups from."""

from extender.api.objects.selectors import LabelSelector, Requirement
from extender.api.quantities import BadQuantity
from extender.domain.model.selectors import Labels, selects

_WITH_VALUES, _WITHOUT_VALUES = ("In", "NotIn"), ("Exists", "DoesNotExist")
_FIELD = "spec.namespaceSelector"


class BadSelector(BadQuantity):
    """A selector that the API server would not accept either."""


def allows_namespace(selector: LabelSelector | None, labels: Labels) -> bool:
    """A queue without a selector takes groups from all namespaces."""
    return selector is None or selects(selector, labels)


def not_selected(queue: str, namespace: str) -> str:
    """What is said where `allows_namespace` is false."""
    return f"{_FIELD} of queue {queue} does not select namespace {namespace}"


def read_selector(selector: LabelSelector | None) -> LabelSelector | None:
    """Raises BadQuantity."""
    for requirement in (selector.match_expressions or ()) if selector is not None else ():
        if fault := _fault(requirement):
            raise BadSelector(f"{_FIELD}: {fault}")
    return selector


def _fault(requirement: Requirement) -> str:
    operator, key = requirement.operator, requirement.key[:80]
    if operator not in (*_WITH_VALUES, *_WITHOUT_VALUES):
        allowed = ", ".join((*_WITH_VALUES, *_WITHOUT_VALUES))
        return f"operator {operator[:40]!r} of {key!r} is not one of {allowed}"
    if not key:
        return "an expression without a key"
    if (operator in _WITH_VALUES) is not bool(requirement.values):
        return f"operator {operator} of {key!r} takes {'values' if operator in _WITH_VALUES else 'no values'}"
    return ""
