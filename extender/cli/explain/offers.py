"""Commands as they are offered: what each is for, and the right that it takes.

The API server says what a person may run; the rest is for an administrator. What tenants write reaches a
shell here: texts that may be anything (annotations, spec.queue, conditions) enter a command only as names
that an object may have.
"""

import re
from typing import NamedTuple

from extender.api.keys import GROUP_ANNOTATION
from extender.cli.access_reviews import Right, right_to
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import OfferedCommand
from extender.kube.resources import DEPLOYMENTS, EVENTS, QUEUES

NAME = "[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_SHUT_BY = re.compile(rf"queue ({NAME}) above it is closed")
_OF_MUSTER = Right("list", "apps", DEPLOYMENTS.plural, "", "kube-muster")


class Offer(NamedTuple):
    """`purpose`: an infinitive without `to`."""

    purpose: str
    line: str
    right: Right


def offered(evidence: Evidence, offer: Offer) -> OfferedCommand:
    return OfferedCommand(offer.purpose, offer.line, str(offer.right), evidence.may(offer.right))


def is_name(text: str) -> bool:
    return re.fullmatch(NAME, text) is not None


# ---- commands that are offered in several places


def opening(queue: str, why_shut: str) -> Offer:
    """`why_shut` may name a queue above it, with which it opens."""
    above = _SHUT_BY.search(why_shut)
    shut = above[1] if above else queue
    purpose = "open the queue above it" if above else "open it"
    return Offer(purpose, f"muster queue open {shut}", right_to("patch", QUEUES, name=shut))


def annotating(namespace: str, pods: list[str], group: str) -> str:
    return f"kubectl -n {namespace} annotate --overwrite pod {' '.join(pods)} {GROUP_ANNOTATION}={group}"


def describing(namespace: str, pod: str, purpose: str) -> Offer:
    line = f"kubectl -n {namespace} describe pod {pod}"
    return Offer(purpose, line, right_to("list", EVENTS, namespace))


def checking() -> Offer:
    return Offer("look whether Muster works", "muster check", _OF_MUSTER)
