"""Others that would have to end, or no longer wait."""

from collections.abc import Sequence

from extender.domain.explanation.case import StartChange, WaitingCase
from extender.domain.explanation.holders import Holder
from extender.domain.explanation.hypotheses import Departed, without, without_pods
from extender.domain.model.reasons import Reason

_NAMES = 4  # in one sentence


def ends_for_room(case: WaitingCase) -> StartChange | None:
    there = [*case.lookup.on_suitable_nodes(), *case.lookup.others()]
    return _end_of(case, sorted(there, key=_smallest_first), "end", needs_room=True)


def ends_in_queue(case: WaitingCase) -> StartChange | None:
    own = case.group.queue
    there = sorted(case.lookup.of_the_queue(), key=lambda each: (each.queue != own, *_smallest_first(each)))
    return _end_of(case, there, "end")


def those_ahead(case: WaitingCase) -> StartChange | None:
    return _end_of(case, case.lookup.holders(Reason.BEHIND_OTHERS), "have started and ended, or are deleted")


def reservations_end(case: WaitingCase) -> StartChange | None:
    return _end_of(case, case.lookup.holders(Reason.RESERVED), "no longer wait and leave their nodes")


def claims_end(case: WaitingCase) -> StartChange | None:
    return _end_of(case, case.lookup.those(lambda each: each.claims_room), "no longer wait")


def victims_gone(case: WaitingCase) -> StartChange | None:
    """Nobody has to do anything: their eviction is under way."""
    if case.decision.reclaim is None:
        return None
    victims = {victim.uid for victim in case.decision.reclaim.victims}
    leaving = {pod.uid for group in case.snapshot.groups.values() for pod in group.departing}
    leaving |= {uid for uid, pod in case.snapshot.others.items() if pod.deleting}
    holders = list(case.lookup.victims())
    whose = (
        f"the pods evicted for it are gone: {_named(holders)}" if holders else "the pods that leave are gone"
    )
    return case.start_change(f"once {whose}", without_pods(case.snapshot, victims | leaving))


def _end_of(
    case: WaitingCase, candidates: Sequence[Holder], does: str, needs_room: bool = False
) -> StartChange | None:
    chosen = case.trial.fewest(candidates, lambda some: without(case.snapshot, _gone(some)), needs_room)
    if not chosen:
        return None
    text = f"once {_named(chosen)} {does if len(chosen) > 1 else _singular(does)}"
    return StartChange(text, ends=tuple(each.name for each in chosen))


def _named(holders: Sequence[Holder]) -> str:
    named = [f"{each.name} ({_pods(each.pods)})" if each.group else f"pod {each.name}" for each in holders]
    more = f" and {len(named) - _NAMES} more" if len(named) > _NAMES else ""
    return f"{', '.join(named[:_NAMES])}{more}"


def _gone(holders: Sequence[Holder]) -> Departed:
    return Departed(
        frozenset(each.group for each in holders if each.group),
        frozenset(each.uid for each in holders if each.uid),
    )


def _smallest_first(holder: Holder) -> tuple[int, str]:
    return (holder.pods, holder.name)


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _singular(does: str) -> str:
    for many, one in (
        ("have ", "has "),
        ("are ", "is "),
        ("no longer wait", "no longer waits"),
        ("leave their", "leaves its"),
    ):
        does = does.replace(many, one)
    return "ends" if does == "end" else does
