"""Putting a case to the code that serves, and judging what comes back.

A case that is skipped is run all the same: when it passes, the skip claims too much, and that is a failure.
"""

from collections.abc import Callable, Iterator

from tests.conformance import admission
from tests.conformance.algebra import check_operator
from tests.conformance.built import check_build
from tests.conformance.cases import Case
from tests.conformance.commands import check_command
from tests.conformance.gates import check_overcommit, check_releasing
from tests.conformance.lifecycle import check_handler, check_state, check_sync
from tests.conformance.lives import check_phase
from tests.conformance.session import check_cycles, check_session
from tests.conformance.sharing import check_deserved, check_share
from tests.conformance.skips import skip_for
from tests.conformance.verdicts import NoCounterpart, Outcome, Result

Check = Callable[[Case], Iterator[str]]
CHECKS: dict[str, Check] = {
    "cli": check_command,
    "deserved": check_deserved,
    "queue.share": check_share,
    "queue.state": check_state,
    "queue.state.handler": check_handler,
    "queue.sync": check_sync,
    "resource.op": check_operator,
    "gang.releasing": check_releasing,
    "overcommit": check_overcommit,
    "podgroup.build": check_build,
    "podgroup.phase": check_phase,
    "session": check_session,
    "session.multi": check_cycles,
    "admission.queue": admission.check_queue,
    "admission.queue.mutate": admission.check_queue_defaults,
    "admission.podgroup": admission.check_group,
    "admission.podgroup.mutate": admission.check_group_defaults,
    "admission.job": admission.check_job,
    "admission.pod": admission.check_pod,
}


def judge(case: Case) -> Result:
    try:
        return _judged(_differences(case), skip_for(case))
    except Exception as fault:  # a case that lacks what its kind has
        return Result(Outcome.FAILED, (f"{type(fault).__name__}: {fault}",))


def _judged(differences: tuple[str, ...], reason: str | None) -> Result:
    if reason is None:
        return Result(Outcome.FAILED if differences else Outcome.PASSED, differences)
    if differences:
        return Result(Outcome.SKIPPED, (reason,))
    return Result(Outcome.FAILED, (f"passes, so it must not be skipped as: {reason}",))


def _differences(case: Case) -> tuple[str, ...]:
    """What differs from what the case expects, or why it cannot be run."""
    try:
        if case.kind not in CHECKS:
            raise NoCounterpart(f"kind {case.kind}")
        return tuple(CHECKS[case.kind](case))
    except NoCounterpart as fault:
        return (f"nothing that serves does this: {fault}",)
