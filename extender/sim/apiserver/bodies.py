"""The bodies of requests: JSON, or what a client says that it is: YAML, protobuf."""

from typing import Any

import msgspec
import yaml

from extender.sim.apiserver import protobuf
from extender.sim.apiserver.status_errors import bad_request, unsupported

_YAML_FORMS = ("application/yaml", "application/apply-patch+yaml")


class _Loader(yaml.SafeLoader):
    """Times stay the texts that they are in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def decoded(raw: bytes, content_type: str) -> Any:
    """Raises StatusError 400 for what is not what it says, 415 for forms that are not known."""
    form = content_type.partition(";")[0].strip() or "application/json"
    if form == "application/json" or form.endswith("+json"):
        return _json(raw)
    if form in _YAML_FORMS:
        return _yaml(raw)
    if form == "application/vnd.kubernetes.protobuf":
        return protobuf.decoded(raw)
    raise unsupported()


def _json(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise bad_request(f"the body is not JSON: {fault}") from fault


def _yaml(raw: bytes) -> Any:
    """Most of it is JSON, which is read a hundred times as fast."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return yaml.load(raw, _Loader)
    except yaml.YAMLError as fault:
        raise bad_request(f"error decoding YAML: {fault}") from fault
