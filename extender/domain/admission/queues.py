"""Admission of queues: whether a queue may be created, changed or deleted, and the defaults of a queue."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from extender.api.keys import CLOSED_BY_PARENT, DEFAULT_QUEUE, HIERARCHY, HIERARCHY_WEIGHTS, ROOT_QUEUE
from extender.api.objects.base import Operation, Quantities, addition
from extender.api.objects.queues import Queue, ResourceFlavor
from extender.api.units import BadQuantity, Quantity, intended_name, listed, rounded_down
from extender.domain.admission.faults import Code, Fault
from extender.domain.model.resources import Resources, offered, show, total
from extender.domain.queues.flavors import resolve
from extender.domain.queues.records import MAX_OVERSELL, QueueRecord, queue_record
from extender.domain.queues.tree import QueueTree


def _parent_of(queue: Queue) -> str:
    """Return the parent of a queue; empty for a queue directly below root."""
    return queue.spec.parent if queue.spec.parent != ROOT_QUEUE else ""


def review_place(queue: Queue, old_queue: Queue | None, tree: QueueTree, max_depth: int) -> Iterator[Fault]:
    """Yield a fault unless the parent of a queue may hold it.

    A new parent must exist, have no pods and be no queue below this one. The tree must not become too deep.
    An unchanged parent is not reviewed.
    """
    name, parent = queue.metadata.name, _parent_of(queue)
    if not parent or (old_queue is not None and parent == _parent_of(old_queue)):
        return
    ancestors = [record.name for record in tree.ancestry(parent)]
    depth = len(ancestors) + tree.height(name)
    if parent == name or name in ancestors:
        code, text = Code.SELF_PARENT, "must be a queue other than this one and those below it"
    elif not ancestors:
        code, text = Code.PARENT_NOT_FOUND, "there is no such queue: create it, or name an existing one"
    elif depth > max_depth:
        code = Code.DEPTH_EXCEEDED
        text = f"{depth} levels below root: must be at most {max_depth}"
    elif not tree.children(parent) and (pods := tree.pod_count(parent)):
        code = Code.PARENT_HAS_PODS
        text = f"that queue has {pods} pods of its own, and only queues without children may have pods"
        text = f"{text}: wait until they are gone, or name another parent"
    else:
        return
    yield Fault(code, "spec.parent", f"invalid value {parent!r}: {text}")


class _Amounts(msgspec.Struct, frozen=True):
    capability: Resources
    deserved: Resources
    guarantee: Resources


def _amounts(queue: Queue) -> _Amounts:
    """Return the amounts in the spec of a queue."""
    spec = queue.spec
    guarantee = spec.guarantee.resource if spec.guarantee else None
    return _Amounts(offered(spec.capability), offered(spec.deserved), offered(guarantee))


def _recorded_amounts(queue: QueueRecord) -> _Amounts:
    """Return the amounts in the record of a queue."""
    return _Amounts(queue.capability or {}, queue.deserved or {}, queue.guarantee)


def review_resources(queue: Queue, old_queue: Queue | None, tree: QueueTree) -> Iterator[Fault]:
    """Yield the fault of the first amount that contradicts other queues, if amounts or parent have changed.

    Root is not compared, because it is the whole cluster. A resource that a queue does not list is unlimited
    in a capability, and 0 in a guarantee or a deserved amount.
    """
    if queue.metadata.name == ROOT_QUEUE:
        return
    name, parent, amounts = queue.metadata.name, _parent_of(queue), _amounts(queue)
    if old_queue is not None and (parent, amounts) == (_parent_of(old_queue), _amounts(old_queue)):
        return
    yield from islice(_hierarchy_faults(amounts, name, parent, tree), 1)


def _hierarchy_faults(own: _Amounts, name: str, parent: str, tree: QueueTree) -> Iterator[Fault]:
    """Yield the faults in relation to the queues above, and then to the queues below."""
    if parent:
        for resource, amount in own.capability.items():
            limits = ((queue.name, (queue.capability or {}).get(resource)) for queue in tree.ancestry(parent))
            owner, limit = next(((owner, top) for owner, top in limits if top is not None), ("", amount))
            if amount > limit:
                text = f"invalid value {show(resource, amount)}: must be at most {show(resource, limit)}, "
                text += f"the capability of queue {owner!r} above it"
                yield Fault(Code.CAPABILITY_ABOVE_ANCESTOR, f"spec.capability[{resource}]", text)
        siblings = [_recorded_amounts(tree.queues[item]) for item in tree.children(parent) if item != name]
        for code, field, sums, top in _excess_sums([own, *siblings], _recorded_amounts(tree.queues[parent])):
            text = f"the sum with its siblings is {sums}: must be at most {top}, "
            yield Fault(code, field, f"{text}that of their parent {parent!r}")
    for resource, amount in own.capability.items():
        for child in tree.children(name):
            owner, largest = tree.max_capability(resource, child)
            if largest > amount:
                text = f"invalid value {show(resource, amount)}: must be at least {show(resource, largest)}, "
                text += f"the capability of queue {owner!r} below it"
                yield Fault(Code.CAPABILITY_BELOW_DESCENDANT, f"spec.capability[{resource}]", text)
    children = [_recorded_amounts(tree.queues[child]) for child in tree.children(name)]
    for code, field, sums, top in _excess_sums(children, own):
        text = f"invalid value {top}: must be at least {sums}, the sum of the queues directly below it"
        yield Fault(code, field, text)


def _excess_sums(children: list[_Amounts], parent: _Amounts) -> Iterator[tuple[Code, str, str, str]]:
    """Yield each sum of the children's guarantees or deserved amounts that exceeds the amount of the parent.

    Each item has the fault code, the field, the sum and the parent's amount.
    """
    guarantees, deserved = [child.guarantee for child in children], [child.deserved for child in children]
    for code, field, amounts, limits in (
        (Code.CHILDREN_GUARANTEE_SUM, "spec.guarantee.resource", guarantees, parent.guarantee),
        (Code.CHILDREN_DESERVED_SUM, "spec.deserved", deserved, parent.deserved),
    ):
        for name, amount in total(amounts).items():
            if amount > (limit := limits.get(name, 0)):
                yield code, f"{field}[{name}]", show(name, amount), show(name, limit)


def guarantee_warnings(
    queue: Queue, old_queue: Queue | None, tree: QueueTree, node_amounts: Resources
) -> Iterator[str]:
    """Yield warnings if new guarantees directly below root add up to more than nodes offer (`node_amounts`).

    An excess is not a fault, since nodes are added and removed.
    """
    guarantee, name = _amounts(queue).guarantee, queue.metadata.name
    old_guarantee = _amounts(old_queue).guarantee if old_queue is not None else None
    if _parent_of(queue) or name == ROOT_QUEUE or guarantee == old_guarantee:
        return
    records = [tree.queues[child] for parent in ("", ROOT_QUEUE) for child in tree.children(parent)]
    other_guarantees = (r.guarantee for r in records if r.name not in (name, ROOT_QUEUE))
    sums = total([guarantee, *other_guarantees])
    for resource in guarantee:
        if sums[resource] > (offer := node_amounts.get(resource, 0)):
            text = f"queues are guaranteed {show(resource, sums[resource])} together; nodes offer"
            text = f"{text} {show(resource, offer)} now, so each has the same part of its guarantee"
            yield f"spec.guarantee.resource[{resource}]: {text}"


def deserved_warnings(queue: Queue, old_queue: Queue | None, node_amounts: Resources) -> Iterator[str]:
    """Yield a warning for each resource of which a new spec.deserved exceeds the amount on nodes."""
    amounts = _amounts(queue).deserved
    if old_queue is not None and amounts == _amounts(old_queue).deserved:
        return
    for resource, amount in amounts.items():
        if amount > (offer := node_amounts.get(resource, 0)):
            value_text = f"invalid value {show(resource, amount)}: nodes offer {show(resource, offer)} now"
            yield f"spec.deserved[{resource}]: {value_text}: until nodes are added, the queue gets no more"


def flavor_warnings(queue: Queue, old_queue: Queue | None, tree: QueueTree) -> Iterator[str]:
    """Yield warnings about new flavors.

    The warnings concern three kinds of flavors:

    - flavors that name a ResourceFlavor that does not exist,
    - flavors of which all nodes belong to an earlier flavor,
    - flavors whose name another queue uses for other nodes.
    """
    if old_queue is not None and queue.spec.flavors == old_queue.spec.flavors:
        return
    flavors = resolve(queue_record(queue).flavors, tree.shared_flavors)
    queues_with_flavors = {name: record for name, record in sorted(tree.queues.items()) if record.flavors}
    for number, new in enumerate(flavors):
        field, labels = f"spec.flavors[{number}].nodeLabels", set(new.nodes.labels)
        if new.is_missing:
            field = f"spec.flavors[{number}].resourceFlavor"
            yield f"{field}: there is no ResourceFlavor {new.resource_flavor} yet: nothing starts on it"
            continue
        existing_flavors = (item for item in flavors[:number] if not item.is_missing)
        earlier_names = (item.name for item in existing_flavors if labels >= set(item.nodes.labels))
        if (earlier_name := next(earlier_names, None)) is not None:
            text = f"all nodes with these labels are of flavor {earlier_name}, which comes first"
            yield f"{field}: {text}: this flavor has no nodes"
        for name, record in queues_with_flavors.items():
            namesakes = (flavor for flavor in record.flavors if flavor.name == new.name)
            if name != queue.metadata.name and any(flavor.nodes != new.nodes for flavor in namesakes):
                yield f"{field}: queue {name} has a flavor {new.name} for other nodes: these are two flavors"
                break


def review_flavor(flavor: ResourceFlavor) -> Iterator[Fault]:
    """Yield the faults of a ResourceFlavor that its schema does not find."""
    for key in flavor.spec.node_labels or {}:
        if len(key.rpartition("/")[2]) > _MAX_NAME_LENGTH or _LABEL_KEY.fullmatch(key) is None:
            text = f"invalid key {key!r}: must be a label key such as example.com/gpu"
            yield Fault(Code.FLAVOR_NOT_VALID, "spec.nodeLabels", text)
    taints = [(taint.key, taint.effect) for taint in flavor.spec.node_taints or ()]
    for key, effect in dict.fromkeys(taint for taint in taints if taints.count(taint) > 1):
        text = f"duplicate value {key}:{effect}: a node has one taint of a key and an effect"
        yield Fault(Code.FLAVOR_NOT_VALID, "spec.nodeTaints", text)


def review_flavor_deletion(name: str, tree: QueueTree) -> Iterator[Fault]:
    """Yield a fault if queues name the ResourceFlavor.

    After its deletion, no group would start on it.
    """
    users = [key for key, q in tree.queues.items() if name in {each.resource_flavor for each in q.flavors}]
    if users:
        text = f"ResourceFlavor {name!r} is named by queue {listed(sorted(users))}: change spec.flavors there"
        yield Fault(Code.FLAVOR_IN_USE, "metadata.name", text)


PROTECTED_QUEUES = frozenset({DEFAULT_QUEUE, ROOT_QUEUE})
_VALID_STATES = ("", "Open", "Closed")
_FIELD_NAMES = {"borrowing_limit": "borrowingLimit", "lending_limit": "lendingLimit"}
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_MAX_NAME_LENGTH = 63
_NUMBER_PATTERN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def review_queue(queue: Queue, old_queue: Queue | None, tree: QueueTree, max_depth: int) -> list[Fault]:
    """Return the faults of a queue.

    After a fault, later rules are not evaluated. The rules concern first the queue's own values, then its
    parent, and then the amounts of other queues.
    """
    faults = [*_own_faults(queue, old_queue), *_review_hierarchy(queue, tree)]
    faults = faults or list(_review_root(queue, old_queue))
    faults = faults or list(review_place(queue, old_queue, tree, max_depth))
    return faults or list(review_resources(queue, old_queue, tree))


def _own_faults(queue: Queue, old_queue: Queue | None) -> Iterator[Fault]:
    """Yield the faults of a queue that do not depend on other queues. An unchanged status is no fault."""
    spec, state = queue.spec, queue.status.state
    if state not in _VALID_STATES and (old_queue is None or state != old_queue.status.state):
        yield Fault(Code.INVALID_STATE, "status.state", f"invalid value {state!r}: must be Open or Closed")
    if spec.state not in _VALID_STATES:
        yield Fault(Code.INVALID_STATE, "spec.state", f"invalid value {spec.state!r}: must be Open or Closed")
    if spec.weight < 1:
        yield Fault(Code.WEIGHT_BELOW_MIN, "spec.weight", f"invalid value {spec.weight}: must be 1 or more")
    yield from _review_amounts(queue)


def _review_amounts(queue: Queue) -> Iterator[Fault]:
    """Yield the faults of a queue's amounts. If no amount is wrong, yield the faults of their relations."""
    fields, spec = _amounts_by_field(queue), queue.spec
    caps = {"spec.borrowingLimit": spec.borrowing_limit or {}, "spec.lendingLimit": spec.lending_limit or {}}
    faults = [fault for field, amounts in (fields | caps).items() for fault in _bad_amounts(field, amounts)]
    yield from faults or _review_relations(fields, spec.lending_limit or {})
    if spec.oversell is not None:
        try:
            is_valid = 1000 <= _exact(spec.oversell) <= MAX_OVERSELL * 1000
        except BadQuantity:
            is_valid = False
        if not is_valid:
            text = f"invalid value {spec.oversell}: must be a number from 1 to {MAX_OVERSELL}, such as 1.5"
            yield Fault(Code.OVERSELL_OUT_OF_RANGE, "spec.oversell", text)
    for number, flavor in enumerate(spec.flavors or ()):
        path = f"spec.flavors[{number}]"
        yield from _review_flavor(path, flavor.amounts())
        if flavor.resource_flavor and flavor.node_labels is not None:
            text = "must have either nodeLabels or resourceFlavor, not both"
            yield Fault(Code.FLAVOR_NOT_VALID, path, text)


def _review_flavor(path: str, by_field: Mapping[str, Quantities]) -> Iterator[Fault]:
    """Yield the faults of the amounts of a flavor.

    Args:
        path: The path of the flavor.
        by_field: The amounts of the flavor.
    """
    by_path = {f"{path}.{_FIELD_NAMES.get(field, field)}": amounts for field, amounts in by_field.items()}
    if faults := [fault for field, amounts in by_path.items() for fault in _bad_amounts(field, amounts)]:
        yield from faults
        return
    capability = by_field.get("capability", {})
    for field in ("deserved", "guarantee"):
        for name, amount in by_field.get(field, {}).items():
            if name in capability and _exact(amount) > _exact(capability[name]):
                text = f"invalid value {amount}: must be the flavor's capability, {capability[name]}, or less"
                yield Fault(Code.DESERVED_ABOVE_CAPABILITY, f"{path}.{field}[{name}]", text)


def _amounts_by_field(queue: Queue) -> dict[str, Quantities]:
    """Return capability, deserved and guarantee of a queue, by field."""
    spec = queue.spec
    return {
        "spec.capability": spec.capability or {},
        "spec.deserved": spec.deserved or {},
        "spec.guarantee.resource": (spec.guarantee.resource if spec.guarantee else None) or {},
    }


def _bad_amounts(field: str, amounts: Quantities) -> Iterator[Fault]:
    """Yield a fault for each unknown resource, and for each amount that is invalid or negative."""
    for name, quantity in amounts.items():
        path = f"{field}[{name}]"
        if problem := intended_name(name):
            yield Fault(Code.NOT_A_RESOURCE, path, problem)
        try:
            if _exact(quantity) < 0:
                yield Fault(Code.NEGATIVE_QUANTITY, path, f"invalid value {quantity}: must be 0 or more")
        except BadQuantity as fault:
            yield Fault(Code.NOT_A_QUANTITY, path, f"invalid value {fault}")


def _review_relations(amounts: Mapping[str, Quantities], lending_limit: Quantities) -> Iterator[Fault]:
    """Yield faults for guarantees above deserved amounts, and for deserved amounts above the capability.

    A lending limit must not exceed the deserved amount, either.
    """
    capability, deserved_amounts, guarantee = amounts.values()
    for name, amount in guarantee.items():
        path = f"spec.deserved[{name}]"
        if name not in deserved_amounts:
            text = f"absent, but the guarantee is {amount}; must be {amount} or more"
            yield Fault(Code.DESERVED_BELOW_GUARANTEE, path, text)
        elif _exact(deserved_amounts[name]) < _exact(amount):
            text = f"invalid value {deserved_amounts[name]}: must be the guarantee, {amount}, or more"
            yield Fault(Code.DESERVED_BELOW_GUARANTEE, path, text)
    for name, amount in deserved_amounts.items():
        if name in capability and _exact(amount) > _exact(capability[name]):
            text = f"invalid value {amount}: must be the capability, {capability[name]}, or less"
            yield Fault(Code.DESERVED_ABOVE_CAPABILITY, f"spec.deserved[{name}]", text)
    for name, amount in lending_limit.items():
        path = f"spec.lendingLimit[{name}]"
        if name not in deserved_amounts:
            text = f"invalid value {amount}, but spec.deserved has no {name}: only deserved amounts are lent"
            yield Fault(Code.LENDING_ABOVE_DESERVED, path, text)
        elif _exact(amount) > _exact(deserved_amounts[name]):
            text = f"invalid value {amount}: must be the deserved amount, {deserved_amounts[name]}, or less"
            yield Fault(Code.LENDING_ABOVE_DESERVED, path, text)


def _exact(quantity: Quantity) -> int:
    """Return an amount in thousandths, to compare quantities as they are written. Raises BadQuantity."""
    return rounded_down(quantity, 1000)


def _review_hierarchy(queue: Queue, tree: QueueTree) -> Iterator[Fault]:
    """Yield the first fault in the annotations of hierarchical shares.

    Later checks rely on earlier checks.
    """
    annotations = queue.metadata.annotations or {}
    path, weights = annotations.get(HIERARCHY, ""), annotations.get(HIERARCHY_WEIGHTS, "")
    if not path and not weights:
        return
    key, parts, count = f"metadata.annotations[{HIERARCHY_WEIGHTS}]", weights.split("/"), path.count("/") + 1
    if len(parts) != count:
        text = (
            f"invalid value {weights!r}, {len(parts)} parts: must be {count}, one for each part of {path!r}"
        )
        yield Fault(Code.HIERARCHY_LENGTH_MISMATCH, key, text)
        return
    for weight_text in parts:
        if _NUMBER_PATTERN.fullmatch(weight_text) is None:
            text = f"invalid value {weight_text!r} in {weights!r}: must be numbers above 0, such as 1/2/3"
            yield Fault(Code.HIERARCHY_WEIGHT_NOT_NUMBER, key, text)
            return
        if float(weight_text) <= 0:
            text = f"invalid value {weight_text} in {weights!r}: must be numbers above 0"
            yield Fault(Code.HIERARCHY_WEIGHT_NOT_POSITIVE, key, text)
            return
    for other_name, record in tree.queues.items():
        if other_name != queue.metadata.name and record.hierarchy.startswith(f"{path}/"):
            text = f"invalid value {path!r}: must not be above {record.hierarchy!r} of queue {other_name!r}"
            yield Fault(Code.HIERARCHY_SUBPATH, f"metadata.annotations[{HIERARCHY}]", text)
            return


def _review_root(queue: Queue, old_queue: Queue | None) -> Iterator[Fault]:
    """Yield a fault for each list of amounts of root that has changed."""
    if queue.metadata.name != ROOT_QUEUE or old_queue is None:
        return
    old_by_field = _amounts_by_field(old_queue)
    for field, amounts in _amounts_by_field(queue).items():
        old = old_by_field[field]
        if amounts.keys() != old.keys() or any(_exact(amounts[name]) != _exact(old[name]) for name in old):
            text = "root is the whole cluster: its amounts cannot change; limit the queues below it instead"
            yield Fault(Code.ROOT_IMMUTABLE, field, text)


def review_deletion(name: str, tree: QueueTree) -> list[Fault]:
    """Return the first reason why a queue may not be deleted, such as objects that depend on it."""
    info = tree.info(name)
    if name in PROTECTED_QUEUES:
        code, text = Code.PROTECTED_QUEUE, "is never deleted: work that names no queue goes to default, "
        text += "and every queue is below root"
    elif info is None:
        code, text = Code.QUEUE_NOT_FOUND, "does not exist"
    elif names := ", ".join(sorted(tree.children(name))):
        code, text = Code.HAS_CHILDREN, f"is the parent of {names}: delete those, or give them another parent"
    elif pods := tree.pod_count(name):
        code = Code.HAS_ALLOCATED_PODS
        text = f"has {pods} pods on nodes: close it, and wait until they are gone"
    elif info.state != "Closed":
        code, text = Code.NOT_CLOSED, f"is {info.state or 'Open'} and holds {info.group_count} groups; "
        text += "only a Closed queue can be deleted: set its spec.state to Closed, and delete its groups"
    else:
        return []
    return [Fault(code, "metadata.name", f"queue {name!r} {text}")]


def queue_defaults(queue: Queue, has_weight: bool) -> list[Operation]:
    """Return the operations that fill in a new queue.

    The operations set:

    - reclaimable,
    - a weight, if the queue has none (not `has_weight`) or 0,
    - a hierarchy path that begins with root,
    - a state. It is Closed if the status says Closed: vcctl writes the state there, but the API server
      drops the status of a new object. A queue from a backup is Open if only its parent closed it.
    """
    patch = []
    if queue.spec.reclaimable is None:
        patch.append(addition(("spec", "reclaimable"), True))
    if not has_weight or queue.spec.weight == 0:
        patch.append(addition(("spec", "weight"), 1))
    annotations = queue.metadata.annotations or {}
    if not queue.spec.state:
        is_closed = queue.status.state == "Closed" and annotations.get(CLOSED_BY_PARENT) != "true"
        patch.append(addition(("spec", "state"), "Closed" if is_closed else "Open"))
    path, weights = annotations.get(HIERARCHY, ""), annotations.get(HIERARCHY_WEIGHTS, "")
    if path and weights and path.partition("/")[0] != ROOT_QUEUE:
        patch.append(addition(("metadata", "annotations", HIERARCHY), f"{ROOT_QUEUE}/{path}"))
        patch.append(addition(("metadata", "annotations", HIERARCHY_WEIGHTS), f"1/{weights}"))
    return patch
