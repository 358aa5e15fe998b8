"""Creation of objects of files in the API server, with the children that controllers would create.

If a ResourceQuota refuses pods, this is not a fault of the file. Controllers create their pods later, and the
command tries to create other pods again.
"""

import math
import uuid
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from extender.api.keys import GROUP_ANNOTATION
from extender.api.workloads.children import SHAPE_ERRORS, kind_of
from extender.api.workloads.shape import value_at
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import EXPANDED_KINDS, KIND_BY_NAME, POD_GROUPS, VOLCANO_JOBS, Json
from extender.apimachinery.quotas import BeyondQuota
from extender.apimachinery.service import Service, WriteOptions
from extender.files.manifests import Manifest, fault_text, namespace_of
from extender.files.offspring import children_of, find_in_store, with_times_on_pods

ARRIVAL = "sim.kube-muster.io/arrival-seconds"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_Key = tuple[str, str, str, str]  # apiVersion, kind, namespace, name


class Created(NamedTuple):
    object: Json  # object that the API server stores
    where: str  # FILE:LINE of the object in the file


def arrival_of(metadata: Json) -> float | None:
    """Return the seconds after which an object is created; None without the annotation.

    Raises:
        ValueError: The annotation is not a number of seconds.
    """
    text = (metadata.get("annotations") or {}).get(ARRIVAL)
    if text is None:
        return None
    with suppress(ValueError):
        seconds = float(text)
        if 0 <= seconds < math.inf:
            return seconds
    raise ValueError(f"metadata.annotations[{ARRIVAL}]: invalid value {text!r}: must be seconds, 0 or more")


def sort_by_arrival(manifests: Iterable[Manifest]) -> list[tuple[float, Manifest]]:
    """Return objects with the seconds after which they are created, in the order of these times.

    By default, a pod has the time of its PodGroup, and an owner of pods has the time of its pod template.

    Raises:
        ValueError: See `arrival_of`.
    """
    objects, groups = list(manifests), {}
    for manifest in objects:
        if manifest.kind is POD_GROUPS:
            groups[namespace_of(manifest.object), manifest.name] = arrival_of(manifest.object["metadata"])
    timed: list[tuple[float, Manifest]] = []
    for manifest in objects:
        meta = manifest.object["metadata"]
        template = value_at(manifest.object, ("spec", "template", "metadata")) or {}
        group = namespace_of(manifest.object), (meta.get("annotations") or {}).get(GROUP_ANNOTATION, "")
        arrivals = arrival_of(meta), arrival_of(template), groups.get(group)
        timed.append((next((seconds for seconds in arrivals if seconds is not None), 0.0), manifest))
    return sorted(timed, key=itemgetter(0))


class Creation:
    """Created objects in the order of their creation, with faults and refused pods.

    Attributes:
        faults: Messages of the API server, with file and line.
        refusals: Pods beyond a quota that no controller creates later, with messages of the API server.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._uids: dict[_Key, str] = {}
        self._numbers = count(1)
        self.objects: list[Created] = []
        self.faults: list[str] = []
        self.refusals: list[tuple[Created, str]] = []

    def create(self, manifests: Iterable[Manifest]) -> None:
        for manifest in manifests:
            self.add(manifest.object, manifest.where)

    def check(self, manifests: Iterable[Manifest]) -> None:
        """Record the faults of objects that are created later."""
        for manifest in manifests:
            try:
                if manifest.kind is not None:
                    self._service.create(manifest.kind, "", manifest.object, WriteOptions(is_dry_run=True))
            except StatusError as refusal:
                self.faults.append(f"{manifest.where}: {refusal.message}")

    def add(self, obj: Json, where: str) -> None:
        """Create an object, and the children that its controller would create."""
        try:
            self._create(obj, where)
        except BeyondQuota as refusal:
            self.refusals.append((Created(obj, where), refusal.message))
        except StatusError as refusal:
            self.faults.append(f"{where}: {refusal.message}")
        except SHAPE_ERRORS as fault:
            self.faults.append(f"{where}: {fault_text(fault)}")

    def retry_refused(self) -> None:
        """Try to create the refused pods again."""
        refused, self.refusals = self.refusals, []
        for (obj, where), _ in refused:
            self.add(obj, where)

    def _create(self, obj: Json, where: str) -> None:
        """Create an object and its children, and record the created objects."""
        kind = KIND_BY_NAME.get((obj["apiVersion"], obj["kind"]))
        for owner in obj["metadata"].get("ownerReferences") or ():
            if not owner.get("uid"):  # the UID is known once the owner is created
                key = owner["apiVersion"], owner["kind"], namespace_of(obj), owner["name"]
                owner["uid"] = self._uids.get(key) or _uid(key)
        if kind is VOLCANO_JOBS:
            obj = with_times_on_pods(obj)
        created = self._service.create(kind, "", obj) if kind else self._as_stored(obj)
        self._uids[_key(created)] = created["metadata"]["uid"]
        self.objects.append(Created(created, where))
        if kind_of(created) is not None:
            for child in children_of(created, find_in_store(self._service.store)):
                if kind is None or kind in EXPANDED_KINDS:
                    self.add(child, where)
                    continue
                with suppress(BeyondQuota):
                    self._create(child, where)

    def _as_stored(self, obj: Json) -> Json:
        """Return an object of a kind that is not served, with the fields that an API server would add."""
        meta = {**obj["metadata"], "namespace": namespace_of(obj)}
        if not meta.get("name"):
            number, letters = next(self._numbers) * 7_919_317, ""
            for _ in range(5):
                number, remainder = divmod(number, len(_LETTERS))
                letters += _LETTERS[remainder]
            meta["name"] = meta["generateName"] + letters
        uid = _uid(_key({**obj, "metadata": meta}))
        return {**obj, "metadata": {**meta, "uid": uid}}


def _key(obj: Json) -> _Key:
    return obj["apiVersion"], obj["kind"], namespace_of(obj), obj["metadata"]["name"]


def _uid(key: _Key) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(key)))
