"""Which queue a group has: the one that its PodGroup names, or without a PodGroup its pods; otherwise that of
the LocalQueue that it names by a label; otherwise that of its namespace; otherwise `default`."""

from extender.api.keys import DEFAULT_QUEUE, QUEUE
from extender.api.objects.cluster import Namespace


def queue_of_podgroup(named: str, namespace_queue: str, local: str = "") -> str:
    """`named`: in spec.queue. `namespace_queue`: by the namespace's annotation or its quota, or empty.
    `local`: the queue that its LocalQueue leads to; empty if it names none."""
    return explicit_queue(named) or local or namespace_queue or DEFAULT_QUEUE


def queue_of_pods(named: str, namespace_queue: str, local: str = "") -> str:
    """The queue of pods without a PodGroup. `named`: in their own annotation or label."""
    return named or local or namespace_queue or DEFAULT_QUEUE


def explicit_queue(named: str) -> str:
    """The queue that spec.queue of a PodGroup or Job asks for; empty if it asks for none. `default` counts as
    none, because schemas fill it in: the namespace may name another queue."""
    return named if named != DEFAULT_QUEUE else ""


def namespace_queue(namespace: Namespace) -> str:
    """The queue that a namespace names for the pods and groups in it; empty if it names none."""
    return (namespace.metadata.annotations or {}).get(QUEUE, "")
