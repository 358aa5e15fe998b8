"""The flavors of a queue, made from the wire objects."""

from collections.abc import Sequence

from extender.api.objects.queues import QueueFlavor
from extender.api.quantities import BadQuantity
from extender.domain.model.node_parts import NodePart, parts_of
from extender.domain.model.resources import offered
from extender.domain.queues.queue_rules import Flavor

MOST_FLAVORS = 16


class BadFlavors(BadQuantity):
    """Flavors that cannot be told apart, or too many."""


def flavors_of(written: Sequence[QueueFlavor]) -> tuple[Flavor, ...]:
    """In their order, which is that in which they are tried. Raises BadQuantity."""
    if len(written) > MOST_FLAVORS:
        raise BadFlavors(f"spec.flavors has {len(written)} entries; at most {MOST_FLAVORS} are allowed")
    names = [flavor.name for flavor in written]
    for number, name in enumerate(names):
        if not name or name in names[:number]:
            raise BadFlavors(f"spec.flavors[{number}].name: {name!r} is {_wrong(name)}")
    parts = parts_of([flavor.node_labels or {} for flavor in written])
    return tuple(_flavor(flavor, part) for flavor, part in zip(written, parts, strict=True))


def _wrong(name: str) -> str:
    return "the name of an earlier flavor" if name else "no name"


def _flavor(written: QueueFlavor, nodes: NodePart) -> Flavor:
    try:
        return Flavor(
            written.name,
            nodes,
            offered(written.capability),
            offered(written.deserved) if written.deserved is not None else None,
        )
    except BadQuantity as fault:
        raise BadFlavors(f"flavor {written.name}: {fault}") from fault
