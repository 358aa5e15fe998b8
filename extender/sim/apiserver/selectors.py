"""The selectors of a request's query: labelSelector and fieldSelector."""

import re
from collections.abc import Callable, Iterator

from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.status_errors import bad_request

Test = Callable[[Json], bool]

_SET = re.compile(r"(?P<key>[^\s!=(),]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s!=(),]+)\s*(?P<operator>!=|==|=)\s*(?P<value>[^\s=(),]*)")
_BARE = re.compile(r"(?P<no>!?)\s*(?P<key>[^\s!=(),]+)")
_INVOLVED = tuple(f"involvedObject.{field}" for field in ("kind", "namespace", "name", "uid"))
_FIELDS = (
    *("metadata.name", "metadata.namespace", "spec.nodeName", "spec.schedulerName", "status.phase"),
    *(*_INVOLVED, "reason", "type"),
)


def selecting(labels: str, fields: str) -> Test:
    """Whether an object is meant. Raises StatusError 400."""
    tests = [*map(_label_test, _requirements(labels)), *map(_field_test, filter(None, fields.split(",")))]
    return lambda obj: all(test(obj) for test in tests)


def _requirements(text: str) -> Iterator[str]:
    """The parts between those commas that are not inside parentheses."""
    return filter(None, (part.strip() for part in re.split(r",(?![^(]*\))", text)))


def _label_test(text: str) -> Test:
    if match := _SET.fullmatch(text):
        values = {value.strip() for value in match["values"].split(",")}
        return _label_in(match["key"], values, match["operator"] == "in")
    if match := _EQUAL.fullmatch(text):
        return _label_in(match["key"], {match["value"]}, match["operator"] != "!=")
    if match := _BARE.fullmatch(text):
        key, present = match["key"], not match["no"]
        return lambda obj: (key in _labels(obj)) is present
    raise bad_request(f"unable to parse requirement: {text!r}")


def _label_in(key: str, values: set[str], wanted: bool) -> Test:
    return lambda obj: (_labels(obj).get(key) in values) is wanted


def _field_test(text: str) -> Test:
    match = _EQUAL.fullmatch(text.strip())
    if match is None or match["key"] not in _FIELDS:
        raise bad_request(f"field label not supported: {text!r}; allowed are {', '.join(_FIELDS)}")
    equal, value = match["operator"] != "!=", match["value"]
    return lambda obj: (_field(obj, match["key"]) == value) is equal


def _field(obj: Json, path: str) -> str:
    part, _, field = path.partition(".")
    found: str = obj.get(part, {}).get(field, "") if field else obj.get(part, "")
    return found


def _labels(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}
