"""When a group is tried again: after failed starts, after events, and one after the other."""

from collections.abc import Iterator

from extender.domain.snapshot.limits import Limits
from tests.conformance.amounts import apart
from tests.conformance.cases import Case
from tests.conformance.queueing.needs import in_family, not_built
from tests.conformance.verdicts import Check, Skip


def check_backoff(case: Case) -> Iterator[str]:
    limits = Limits(backoff=case.input["initial_s"], backoff_max=case.input["max_s"])
    yield from apart("wait", case.expect["wait_s"], limits.retry_after(case.input["attempts"] - 1))


def _grows_otherwise(case: Case) -> bool:
    """Whether a factor other than 2 makes another pause."""
    initial, most, more = case.input["initial_s"], case.input["max_s"], case.input["attempts"] - 1
    doubled, grown = (min(most, initial * factor**more) for factor in (2, case.input["factor"]))
    return bool(doubled != grown)


CHECKS: dict[str, Check] = {"backoff": check_backoff}
SKIPS: tuple[Skip, ...] = (
    Skip(
        "the pause after a failed start doubles, by no other factor",
        in_family("backoff", where=_grows_otherwise),
    ),
    *not_built("requeue_rule", "requeue_gate", "queue_ops", "heads"),
)
