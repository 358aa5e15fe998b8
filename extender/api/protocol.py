"""The extender protocol, kube-scheduler/extender/v1, exactly as Go writes it.

The Go types have no JSON tags, so keys are the field names in CapitalCase and absent pointers are `null`.
Top-level keys are read in any capitalisation, and unknown keys are skipped. Node names stay undecoded
(`msgspec.Raw`) until they are needed.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TypeVar, overload

import msgspec

from extender.api.objects.pods import Pod


class Message(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Base of all requests and answers. Keys are CapitalCase, and nulls are written."""


class ExtenderArgs(Message, frozen=True, forbid_unknown_fields=True):
    """Request of filter and prioritize.

    The candidates are in NodeNames if the extender is nodeCacheCapable, else in Nodes.
    """

    pod: Pod
    nodes: msgspec.Raw = msgspec.Raw(b"null")
    node_names: msgspec.Raw = msgspec.Raw(b"null")


class MalformedRequest(ValueError):
    """Error: a body does not follow the protocol. The message names the path of the fault."""


class NodeNames(Sequence[str]):
    """Node names that the scheduler offers.

    Most look-ups ask for a single name. The raw bytes can answer them, because Go writes node names without
    escapes. Any other access decodes all names, and raises MalformedRequest if they are invalid.
    """

    def __init__(self, raw: msgspec.Raw) -> None:
        self._raw = bytes(raw)

    @cached_property
    def _all(self) -> list[str]:
        try:
            return msgspec.json.decode(self._raw, type=list[str])
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise MalformedRequest(f"NodeNames: {fault}") from fault

    def __contains__(self, name: object) -> bool:
        return f'"{name}"'.encode() in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._all[index]


class FilterResult(Message, frozen=True):
    nodes: msgspec.Raw | None = None
    node_names: list[str] | msgspec.Raw | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class HostPriority(Message, frozen=True):
    """Element of the array that prioritize returns. `score` is from 0 to 10."""

    host: str
    score: int


class BindingArgs(Message, frozen=True, forbid_unknown_fields=True):
    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class BindingResult(Message, frozen=True):
    error: str = ""


class Victim(Message, frozen=True):
    uid: str = msgspec.field(name="UID")


class MetaVictims(Message, frozen=True):
    pods: list[Victim] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class FullVictims(Message, frozen=True):
    pods: list[Pod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArgs(Message, frozen=True, forbid_unknown_fields=True):
    pod: Pod
    node_name_to_victims: dict[str, FullVictims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptionResult(Message, frozen=True):
    node_name_to_meta_victims: dict[str, MetaVictims]


T = TypeVar("T", bound=Message)


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a request of `kind`.

    Raises:
        MalformedRequest: The body does not follow the protocol. The message has the path of the fault.
    """
    try:
        with suppress(msgspec.ValidationError):
            return msgspec.json.decode(body, type=kind)
        # Respell the top-level keys as Go writes them, and leave out unknown keys.
        spelling = {name.lower(): name for name in kind.__struct_encode_fields__}
        values = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        respelled = {spelling[key.lower()]: value for key, value in values.items() if key.lower() in spelling}
        return msgspec.json.decode(msgspec.json.encode(respelled), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise MalformedRequest(str(fault)) from fault


encode = msgspec.json.Encoder().encode
