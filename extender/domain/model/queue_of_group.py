"""Which queue a group has: the one that its PodGroup names, or its pods where there is none; else its
namespace's; else `default`."""

from extender.api.keys import DEFAULT_QUEUE, QUEUE
from extender.api.objects import Namespace


def queue_of_podgroup(named: str, namespace_queue: str) -> str:
    """`named`: in spec.queue. `namespace_queue`: by the namespace's annotation; empty where it has none."""
    return says_queue(named) or namespace_queue or DEFAULT_QUEUE


def queue_of_pods(named: str, namespace_queue: str) -> str:
    """Of pods without a PodGroup. `named`: by their own annotation or label."""
    return named or namespace_queue or DEFAULT_QUEUE


def says_queue(named: str) -> str:
    """The queue that spec.queue of a PodGroup or Job asks for; empty where it asks for none: `default` is
    what schemas fill in, so the namespace may say otherwise."""
    return named if named != DEFAULT_QUEUE else ""


def namespace_queue(namespace: Namespace) -> str:
    """The queue that a namespace names for what is in it; empty: none."""
    return (namespace.metadata.annotations or {}).get(QUEUE, "")
