"""Creation of objects of files in the API server, with the children that controllers would make.

Pods that a ResourceQuota refuses are no fault of a file: controllers create their pods later, and the command
tries to create the others again.
"""

import math
import uuid
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from extender.api.keys import GROUP_ANNOTATION
from extender.api.workloads.children import MALFORMED, kind_of
from extender.api.workloads.shape import value_at
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import BY_NAME, EXPANDED_KINDS, POD_GROUPS, VOLCANO_JOBS, Json
from extender.apimachinery.quotas import BeyondQuota
from extender.apimachinery.service import Service, WriteOptions
from extender.files.manifests import Manifest, fault_text, namespace_of
from extender.files.offspring import children_of, hand_down, in_store

ARRIVAL = "sim.kube-muster.io/arrival-seconds"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_Key = tuple[str, str, str, str]  # apiVersion, kind, namespace, name


class Created(NamedTuple):
    object: Json  # as the API server stores it, or would
    where: str  # FILE:LINE of the object


def arrival_of(metadata: Json) -> float | None:
    """Return the seconds after which an object is created; None without the annotation.

    Raises:
        ValueError: The annotation is no number of seconds.
    """
    text = (metadata.get("annotations") or {}).get(ARRIVAL)
    if text is None:
        return None
    with suppress(ValueError):
        if 0 <= (at := float(text)) < math.inf:
            return at
    raise ValueError(f"metadata.annotations[{ARRIVAL}]: invalid value {text!r}: must be seconds, 0 or more")


def by_arrival(manifests: Iterable[Manifest]) -> list[tuple[float, Manifest]]:
    """Return objects with the seconds after which they are created, in that order.

    Pods come with their PodGroup, and the owners of pods with these, unless they say when.

    Raises:
        ValueError: See `arrival_of`.
    """
    objects, groups = list(manifests), {}
    for manifest in objects:
        if manifest.kind is POD_GROUPS:
            groups[namespace_of(manifest.object), manifest.name] = arrival_of(manifest.object["metadata"])
    found: list[tuple[float, Manifest]] = []
    for manifest in objects:
        meta = manifest.object["metadata"]
        template = value_at(manifest.object, ("spec", "template", "metadata")) or {}
        group = namespace_of(manifest.object), (meta.get("annotations") or {}).get(GROUP_ANNOTATION, "")
        arrivals = arrival_of(meta), arrival_of(template), groups.get(group)
        found.append((next((each for each in arrivals if each is not None), 0.0), manifest))
    return sorted(found, key=itemgetter(0))


class Creation:
    """Created objects, in order, with faults and refused pods.

    Attributes:
        faults: The server's messages, by file and line.
        refused: Pods beyond a quota that no controller creates later, with the server's messages.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._uids: dict[_Key, str] = {}
        self._numbers = count(1)
        self.objects: list[Created] = []
        self.faults: list[str] = []
        self.refused: list[tuple[Created, str]] = []

    def create(self, manifests: Iterable[Manifest]) -> None:
        for manifest in manifests:
            self.add(manifest.object, manifest.where)

    def check(self, manifests: Iterable[Manifest]) -> None:
        """Record the faults of objects that are created later."""
        for manifest in manifests:
            try:
                if manifest.kind is not None:
                    self._service.create(manifest.kind, "", manifest.object, WriteOptions(dry=True))
            except StatusError as refusal:
                self.faults.append(f"{manifest.where}: {refusal.message}")

    def add(self, obj: Json, where: str) -> None:
        """Create one object, and the children that its controller would make."""
        try:
            self._create(obj, where)
        except BeyondQuota as refusal:
            self.refused.append((Created(obj, where), refusal.message))
        except StatusError as refusal:
            self.faults.append(f"{where}: {refusal.message}")
        except MALFORMED as fault:
            self.faults.append(f"{where}: {fault_text(fault)}")

    def try_again(self) -> None:
        """Create refused objects again."""
        again, self.refused = self.refused, []
        for (obj, where), _ in again:
            self.add(obj, where)

    def _create(self, given: Json, where: str) -> None:
        kind = BY_NAME.get((given["apiVersion"], given["kind"]))
        for owner in given["metadata"].get("ownerReferences") or ():
            if not owner.get("uid"):  # it is known only now
                key = owner["apiVersion"], owner["kind"], namespace_of(given), owner["name"]
                owner["uid"] = self._uids.get(key) or _uid(key)
        if kind is VOLCANO_JOBS:
            given = hand_down(given)
        made = self._service.create(kind, "", given) if kind else self._stored(given)
        self._uids[_key(made)] = made["metadata"]["uid"]
        self.objects.append(Created(made, where))
        if kind_of(made) is not None:
            for child in children_of(made, in_store(self._service.store)):
                if kind is None or kind in EXPANDED_KINDS:
                    self.add(child, where)
                    continue
                with suppress(BeyondQuota):
                    self._create(child, where)

    def _stored(self, given: Json) -> Json:
        """Return the object as the server stores it."""
        meta = {**given["metadata"], "namespace": namespace_of(given)}
        if not meta.get("name"):
            number, letters = next(self._numbers) * 7_919_317, ""
            for _ in range(5):
                number, rest = divmod(number, len(_LETTERS))
                letters += _LETTERS[rest]
            meta["name"] = meta["generateName"] + letters
        made = {**given, "metadata": meta}
        return {**made, "metadata": {**meta, "uid": _uid(_key(made))}}


def _key(obj: Json) -> _Key:
    return obj["apiVersion"], obj["kind"], namespace_of(obj), obj["metadata"]["name"]


def _uid(key: _Key) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(key)))
