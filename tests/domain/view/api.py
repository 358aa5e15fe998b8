"""Model of the API server: a history of pods, with a version for each change; and a codec for frames."""

from msgspec import Struct, json
from msgspec.structs import replace

from extender.domain.model.records import Uid
from extender.domain.model.versioned_pod_watch import Appearance, PassOn, PodEvent, PodFacts, Show, TakeAway

OURS = "muster"


class Pod(Struct, frozen=True):
    uid: str
    name: str
    scheduler: str
    version: int
    node: str = ""

    @property
    def is_ours(self) -> bool:
        return self.scheduler == OURS and not self.node

    @property
    def facts(self) -> PodFacts:
        return PodFacts(Uid(self.uid), "ns", self.name, self.scheduler, self.node, self.version)


class Frame(Struct, frozen=True):
    """Event as a client reads it."""

    type: str
    version: int
    pod: Pod | None = None  # with its version in the API, which may differ from the client's
    nominated: str = ""
    ends_initial: bool = False
    by_muster: bool = False  # whether Muster, not the API server, made the event


class Api:
    def __init__(self) -> None:
        self.version = 1
        self.oldest = 0  # oldest version from which a watch may start; earlier ones get 410
        self.alive: dict[str, Pod] = {}
        self.events: list[PodEvent] = []
        self._uids = 0

    def create(self, name: str, scheduler: str) -> None:
        self._uids += 1
        self._put("ADDED", Pod(f"u{self._uids}", name, scheduler, self._next_version()))

    def change(self, name: str, node: str = "") -> None:
        pod = self.alive[name]
        self._put("MODIFIED", replace(pod, version=self._next_version(), node=node or pod.node))

    def delete(self, name: str) -> None:
        self._put("DELETED", replace(self.alive[name], version=self._next_version()))

    def use_up_version(self) -> None:
        """Use up a version for an object of another kind."""
        self._next_version()

    def by_uid(self, uid: str) -> Pod | None:
        return next((pod for pod in self.alive.values() if pod.uid == uid), None)

    def pods_at(self, version: int) -> dict[str, Pod]:
        pods: dict[str, Pod] = {}
        for event in self.events_between(0, version):
            pod = json.decode(event.pod, type=Pod)
            if event.type == "DELETED":
                del pods[pod.name]
            else:
                pods[pod.name] = pod
        return pods

    def events_between(self, after: int, until: int) -> list[PodEvent]:
        return [event for event in self.events if after < event.version <= until]

    def _next_version(self) -> int:
        self.version += 1
        return self.version

    def _put(self, type_: str, pod: Pod) -> None:
        self.events.append(pod_event(type_, pod))
        if type_ == "DELETED":
            del self.alive[pod.name]
        else:
            self.alive[pod.name] = pod


def pod_event(type_: str, pod: Pod) -> PodEvent:
    frame = json.encode(Frame(type_, pod.version, pod))
    return PodEvent(type_, pod.version, pod.facts, ends_initial=False, pod=json.encode(pod), frame=frame)


def bookmark(version: int, ends_initial: bool) -> PodEvent:
    frame = json.encode(Frame("BOOKMARK", version, ends_initial=ends_initial))
    return PodEvent("BOOKMARK", version, None, ends_initial, pod=b"", frame=frame)


def frame_of(write: PassOn | Show | TakeAway) -> Frame:
    match write:
        case PassOn(frame):
            return json.decode(frame, type=Frame)
        case Show(type_, pod, version, appearance):
            return appearance_frame(type_, json.decode(pod, type=Pod), version, appearance)
        case TakeAway(facts, version):
            deleted = Pod(facts.uid, facts.name, facts.scheduler, facts.version)
            return Frame("DELETED", version, deleted, by_muster=True)


def appearance_frame(type_: str, pod: Pod, version: int, appearance: Appearance) -> Frame:
    return Frame(type_, version, pod, appearance.node, by_muster=version != pod.version)
