"""Misleading expectations of phases that Muster has corrected."""

from tests.conformance.cases import Case

_COUNTED_AS_MEMBERS = ("Running", "Bound", "Succeeded")
_FINISHED_STATES = ("Succeeded", "Failed")
_PENDING_STATES = ("Pending", "Pipelined", "Allocated", "Binding")


def _count(case: Case, *statuses: str) -> int:
    return sum(task["status"] in statuses for task in case.input["tasks"])


def _placed_count(case: Case) -> int:
    leaving = [task for task in case.input["tasks"] if task["status"] == "Releasing" and task.get("node")]
    return _count(case, *_COUNTED_AS_MEMBERS, "Failed") + len(leaving)


def _is_phase(case: Case) -> bool:
    return case.kind == "podgroup.phase"


def ends_before_it_began(case: Case) -> bool:
    """Return whether a group that needs no members is to be Completed without any member placed."""
    return _is_phase(case) and case.input["minMember"] == 0 and _placed_count(case) == 0


def ends_before_replacements(case: Case) -> bool:
    """Return whether a group should be Completed although replacements of failed members wait."""
    if not _is_phase(case) or not _count(case, *_PENDING_STATES):
        return False
    minimum = int(case.input["minMember"])
    finished = _count(case, *_FINISHED_STATES) == _placed_count(case) >= max(minimum, 1)
    return finished and _count(case, "Succeeded") < max(minimum, 1)


def waits_again_while_it_runs(case: Case) -> bool:
    """Return whether a running group that lost members should be in the phase of a new group."""
    if not _is_phase(case) or not _count(case, "Running") or case.input["unschedulableThisCycle"]:
        return False
    minimum = int(case.input["minMember"])
    is_short = _count(case, *_COUNTED_AS_MEMBERS, *_PENDING_STATES) < minimum
    return _placed_count(case) < minimum and (is_short or case.input["currentPhase"] != "Inqueue")


def is_unknown_with_all_it_needs(case: Case) -> bool:
    """Return whether a group with enough running members should be Unknown because of further members."""
    if not _is_phase(case) or not _count(case, "Running") or not case.input["unschedulableThisCycle"]:
        return False
    minimum = int(case.input["minMember"])
    is_complete = _count(case, *_COUNTED_AS_MEMBERS) >= minimum
    return is_complete or (not _count(case, *_PENDING_STATES) and _placed_count(case) >= minimum)


def stays_inqueue_without_place(case: Case) -> bool:
    """Return whether a group is to stay Inqueue although it lacks members, or capacity for them."""
    if not _is_phase(case) or case.input["currentPhase"] != "Inqueue" or _count(case, "Running"):
        return False
    minimum = int(case.input["minMember"])
    is_short = _count(case, *_COUNTED_AS_MEMBERS, *_PENDING_STATES) < minimum
    return _placed_count(case) < minimum and (is_short or case.input["unschedulableThisCycle"])
