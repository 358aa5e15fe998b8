"""What conditions, events and the log say of a group, so that all of them say the same."""

from extender.domain.decisions.decisions import GroupDecision


def told(decision: GroupDecision, change: str = "") -> str:
    """The numbers behind its reason, its place in line, and what would start it."""
    return "; ".join(filter(None, (decision.detail, place(decision), change)))


def place(decision: GroupDecision) -> str:
    """`position 3 in queue research`; empty for a group that is not in line."""
    return f"position {decision.position} in queue {decision.queue}" if decision.position else ""
