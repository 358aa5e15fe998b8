"""The rules in CEL that compare the amounts of a queue, as manifests/crds/queues.yaml has them."""

from typing import Any

from extender.api.quantities import BadQuantity, at_least
from extender.sim.apiserver.field_errors import FieldErrors, wrong_as_stated
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.schemas.field_schemas import FieldSchema

_NANO = 10**9


def queue_errors(queue: Json, schema: FieldSchema) -> FieldErrors:
    """The words are those of the CRD, whose rules come in this order."""
    spec = queue.get("spec") or {}
    deserved, capability = spec.get("deserved") or {}, spec.get("capability") or {}
    guarantee = (spec.get("guarantee") or {}).get("resource") or {}
    compared = ((deserved, capability), (guarantee, capability), (guarantee, deserved))
    rules = schema.field("spec").published["x-kubernetes-validations"]
    for (lower, upper), rule in zip(compared, rules, strict=True):
        if any(name in upper and _above(lower[name], upper[name]) for name in lower):
            yield wrong_as_stated(f"spec{rule['fieldPath']}", rule["message"])


def _above(one: Any, other: Any) -> bool:
    """What is no quantity is not compared: it has an error of its own."""
    try:
        return at_least(one, _NANO) > at_least(other, _NANO)
    except BadQuantity:
        return False
