"""Kind `resource.op`: Volcano's operators on vectors, checked with the functions of Muster that correspond.

Comparisons are the limits of queues, and the difference is a sum of the ledger. The minimum is the share that
`divide` gives a single queue, bounded by its requests (missing is zero) or its capability (missing is
infinite). Other operators have no counterpart.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.resources import add
from extender.domain.queues.share_tree import QueueDemand, exceeded_dimensions
from tests.conformance.amounts import amounts, differing, unequal, whole_amounts
from tests.conformance.cases import Case
from tests.conformance.verdicts import NoCounterpart
from tests.sharing import divide, within

_UNLIMITED = float("inf")


def check_operator(case: Case) -> Iterator[str]:
    match case.input["op"], case.input.get("missing", "zero"):
        case "lessEqual", "zero":
            return _less_equal(case)
        case "lessEqualInRequestedDimensions", _:
            return _less_equal_where_requested(case)
        case "minPerDimension", missing:
            return _minimum(case, missing)
        case "diff", "zero":
            return _difference(case)
        case operator, missing:
            raise NoCounterpart(f"operator {operator}, missing dimensions {missing}")


def _less_equal(case: Case) -> Iterator[str]:
    is_within = within(whole_amounts(case.input["left"]), {}, amounts(case.input["right"]))
    yield from unequal("result", case.expect["result"], is_within)


def _less_equal_where_requested(case: Case) -> Iterator[str]:
    """Check the left side as the amount that would be held: held already, and requested."""
    total, limit = whole_amounts(case.input["left"]), amounts(case.input["right"])
    request = case.input.get("request")
    requested = total if request is None else whole_amounts(request)
    held = dict(total)
    add(held, requested, -1)
    violated = exceeded_dimensions(requested, held, limit)
    yield from unequal("result", case.expect["result"], not violated)
    yield from unequal("violated", sorted(case.expect["violated"]), sorted(violated))


def _minimum(case: Case, missing: str) -> Iterator[str]:
    left, right = whole_amounts(case.input["left"]), _finite_amounts(case.input["right"])
    if missing == "zero":
        unlimited = {name: left.get(name, 0) for name in _unlimited_names(case.input["right"])}
        demand = QueueDemand("q", 1, right | unlimited)
    else:
        demand = QueueDemand("q", 1, left, right)
    deserved = divide(left, [demand])["q"].deserved
    yield from differing("result", amounts(case.expect["result"]), deserved)


def _finite_amounts(vector: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(n) for name, n in amounts(vector).items() if n != _UNLIMITED}


def _unlimited_names(vector: Mapping[str, Any]) -> list[str]:
    return [name for name, n in amounts(vector).items() if n == _UNLIMITED]


def _difference(case: Case) -> Iterator[str]:
    change = whole_amounts(case.input["left"])
    add(change, whole_amounts(case.input["right"]), -1)
    increased = {name: float(n) for name, n in change.items() if n > 0}
    decreased = {name: float(-n) for name, n in change.items() if n < 0}
    yield from differing("increased", amounts(case.expect["increased"]), increased)
    yield from differing("decreased", amounts(case.expect["decreased"]), decreased)
