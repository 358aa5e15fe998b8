"""What may be changed about a queue that keeps a group waiting."""

import re
from collections.abc import Iterator

from extender.cli.access_reviews import right_to
from extender.cli.explain.case import Case
from extender.cli.explain.offers import NAME, Offer, is_name, opening
from extender.cli.formatting import number
from extender.domain.model.resources import CPU, show
from extender.kube.resources import LOCAL_QUEUES, NAMESPACES, POD_GROUPS, QUEUES

_FIRST = re.compile(rf"^({NAME})/({NAME}) ")
_LOCAL = re.compile(rf"^spec\.stopPolicy of LocalQueue ({NAME})/({NAME}) is ")
_LOCAL_QUEUE = f"{LOCAL_QUEUES.plural}.{LOCAL_QUEUES.group}"
# cpu: 4 + 2 > 5, as the detail of a ceiling has it
_ABOVE = re.compile(r"([^\s:]{1,300}): (?:(\S{1,40}) \+ )?(\S{1,40}) > ")


def opened(case: Case) -> Iterator[Offer]:
    if is_name(case.queue):
        yield opening(case.queue, case.detail)


def resumed(case: Case) -> Iterator[Offer]:
    """The queue, or the LocalQueue where that is what is stopped."""
    if stopped := _LOCAL.search(case.detail):
        namespace, name = stopped.groups()
        patch = """'{"spec": {"stopPolicy": "None"}}'"""
        line = f"kubectl -n {namespace} patch {_LOCAL_QUEUE} {name} --type merge -p {patch}"
        right = right_to("patch", LOCAL_QUEUES, namespace, name)
        yield Offer("let its LocalQueue admit groups again", line, right)
    elif is_name(case.queue):
        line = f"muster queue resume {case.queue}"
        yield Offer("let it admit groups again", line, right_to("patch", QUEUES, name=case.queue))


def namespace_labelled(case: Case) -> Iterator[Offer]:
    """Where labels are all that its queue asks for."""
    queue = case.evidence.queue(case.queue)
    selector = queue.spec.namespace_selector if queue else None
    if selector is not None and selector.match_labels and not selector.match_expressions:
        labels = " ".join(f"{key}={value}" for key, value in sorted(selector.match_labels.items()))
        line = f"kubectl label namespace {case.namespace} {labels}"
        right = right_to("patch", NAMESPACES, name=case.namespace)
        yield Offer("have the queue take the namespace", line, right)


def higher_capability(case: Case) -> Iterator[Offer]:
    """As much as the group needs, of what the queue's own capability limits."""
    queue = case.evidence.queue(case.queue)
    limits = (queue.spec.capability or {}) if queue else {}
    above = [
        (name, number(name, held) + number(name, asked)) for name, held, asked in _ABOVE.findall(case.detail)
    ]
    if wanted := [f"{name}={_written(name, most)}" for name, most in above if name in limits]:
        yield _updated(case, "raise its capability", f"--capability {','.join(wanted)}")


def _written(name: str, amount: int) -> str:
    """As people write it, where that is not rounded down."""
    text = show(name, amount)
    if number(name, text) >= amount:
        return text
    return f"{amount}m" if name == CPU else str(amount)


def larger_share(case: Case) -> Iterator[Offer]:
    if queue := case.evidence.queue(case.queue):
        yield _updated(case, "give it a larger share", f"--weight {2 * queue.spec.weight}")


def overtaking(case: Case) -> Iterator[Offer]:
    if first := _FIRST.match(case.detail):
        line = f"muster why podgroup/{first[2]} -n {first[1]}"
        yield Offer("see what the first one waits for", line, right_to("get", POD_GROUPS, first[1]))
    if is_name(case.queue):
        yield _updated(case, "let groups overtake", "--dequeue-strategy traverse")


def _updated(case: Case, purpose: str, flags: str) -> Offer:
    line = f"muster queue update {case.queue} {flags}"
    return Offer(purpose, line, right_to("patch", QUEUES, name=case.queue))
