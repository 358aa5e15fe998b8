"""Tables of the kinds of volcano.json with their checks, and of the skipped cases."""

from tests.conformance.verdicts import Check
from tests.conformance.volcano import admission
from tests.conformance.volcano.algebra import check_operator
from tests.conformance.volcano.built import check_build
from tests.conformance.volcano.commands import check_command
from tests.conformance.volcano.gates import check_overcommit, check_releasing
from tests.conformance.volcano.lifecycle import check_handler, check_state, check_sync
from tests.conformance.volcano.lives import check_phase
from tests.conformance.volcano.session import check_cycles, check_session
from tests.conformance.volcano.sharing import check_deserved, check_share
from tests.conformance.volcano.skips import SKIPS

__all__ = ["CHECKS", "SKIPS"]

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
