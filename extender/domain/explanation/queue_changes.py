"""What its queue, or one above it, would have to allow."""

from collections.abc import Iterator

from msgspec.structs import replace

from extender.domain.explanation.case import StartChange, WaitingCase, amounts_text
from extender.domain.explanation.hypotheses import with_group, with_queue
from extender.domain.lifecycle.quorum import missing
from extender.domain.model.resources import Resources, show
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_rules import Limit
from extender.domain.snapshot.snapshot import Snapshot


def capability(case: WaitingCase) -> StartChange | None:
    """Of its queue, or of one above it."""
    for record in _path(case):
        wanted = _wanted_capability(case, record)
        if wanted and case.trial.starts(with_queue(case.snapshot, replace(record, capability=wanted))):
            before = record.capability or {}
            more = {name: amount for name, amount in wanted.items() if amount != before.get(name)}
            parts = [
                f"{amounts_text({name: n})} instead of {show(name, before[name])}" for name, n in more.items()
            ]
            return StartChange(f"with spec.capability {', '.join(parts)} in queue {record.name}")
    return None


def _wanted_capability(case: WaitingCase, record: QueueRecord) -> Resources | None:
    """What its groups hold and start with, and what this group misses; None where it limits none of
    that."""
    before, there = record.capability or {}, _in_subtree(case, record.name)
    asked = missing(case.group).requests
    wanted = {
        name: max(amount, there.get(name, 0) + asked.get(name, 0)) if name in asked else amount
        for name, amount in before.items()
    }
    return wanted if wanted != before else None


def _in_subtree(case: WaitingCase, queue: str) -> dict[str, int]:
    sums = dict(case.decisions.queues[queue].allocated)
    for decision in case.decisions.groups.values():
        if decision.plan and _is_below(case, decision.queue, queue):
            for pod in case.snapshot.groups[decision.key].waiting:
                for name, amount in pod.shape.requests.items() if pod.uid in decision.plan else ():
                    sums[name] = sums.get(name, 0) + amount
    return sums


def _is_below(case: WaitingCase, queue: str, above: str) -> bool:
    return above in _names_above(case, queue)


def _names_above(case: WaitingCase, queue: str) -> list[str]:
    names: list[str] = []
    while queue in case.decisions.queues and queue not in names:
        names.append(queue)
        queue = case.decisions.queues[queue].parent
    return names


def _path(case: WaitingCase) -> Iterator[QueueRecord]:
    for name in _names_above(case, case.group.queue):
        yield case.snapshot.queues[name].record


def limit(case: WaitingCase) -> StartChange | None:
    """On groups or pods that run."""
    if case.queue is None:
        return None
    record, size = case.queue, len(missing(case.group).members)
    for field, whose in (("queue", ""), ("user", " of each user"), ("namespace", " of each namespace")):
        limit: Limit = getattr(record.limits, field)
        for kind, now, more in (("groups", limit.groups, 1), ("pods", limit.pods, size)):
            if now is None:
                continue
            raised = _raised(case, record, field, kind, now, more)
            if raised is not None:
                return StartChange(
                    f"with a limit of {now + raised} {kind}{whose} instead of {now} in queue {record.name}"
                )
    return None


def _raised(case: WaitingCase, record: QueueRecord, field: str, kind: str, now: int, more: int) -> int | None:
    def after(n: int) -> Snapshot:
        limit = replace(getattr(record.limits, field), **{kind: now + n})
        return with_queue(case.snapshot, replace(record, limits=replace(record.limits, **{field: limit})))

    return case.trial.least(more, after)


def queue_resumed(case: WaitingCase) -> StartChange | None:
    if case.queue is None or not case.queue.stop_policy:
        return None
    resumed = with_queue(case.snapshot, replace(case.queue, stop_policy=""))
    return case.start_change(f"with spec.stopPolicy None in queue {case.queue.name}", resumed)


def namespace_allowed(case: WaitingCase) -> StartChange:
    allowed = with_group(case.snapshot, replace(case.group, namespace_allowed=True))
    namespace = case.group.key.partition("/")[0]
    return case.start_change(
        f"with spec.namespaceSelector of queue {case.group.queue} selecting namespace {namespace}", allowed
    )
