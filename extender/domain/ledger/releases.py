"""Releases of pods to the scheduler. No pod is released if the scheduler reads pods from the API server.

    planned ──release──► shown ──► held, posted, bound        the claim is fixed all the while
                           └──► taken back ──► leaving ──► released again

After a pod was taken back, the scheduler may still process it. The end of this old attempt would undo a new
attempt. Therefore, the pod is shown again only once the end of the old attempt is reported, or enough time
has passed.
"""

from collections.abc import Callable
from typing import NamedTuple

from extender.domain.ledger.claims import Claim, ClaimStage
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.versioned_pod_watch import AS_STORED, Appearance, Change


class Bypasses(NamedTuple):
    """Calls about pods that the proxy has not shown, because their scheduler reads pods elsewhere."""

    calls: int = 0
    age: float | None = None  # seconds since the last such call; None: no such call


MAX_NOMINATED_PODS = 16  # limit of pods nominated for a node: filter copies the node's state for each of them
_LAG_SECONDS = 0.5  # seconds by which the scheduler's data on nodes and bound pods may be outdated
_NO_CALL_SECONDS = 1.0  # seconds until the end of an attempt without a bind call, once its pod is taken back
_CALL_SECONDS = 5.0  # seconds from the end of a bind call to the scheduler's report


class ReleaseCounts(NamedTuple):
    """Numbers of released pods."""

    released: int  # pods that are shown and not bound yet
    leaving: int  # pods taken back that the scheduler may still process
    taken_back: int  # pods taken back since the start of this process


class Releases:
    """Releases of pods to the scheduler. Callers hold the ledger's lock.

    Args:
        on_change: Called when the appearance of a pod changes. None means that the scheduler does not read
            its pods through Muster.
        clock: The monotonic clock, in seconds.
    """

    def __init__(self, on_change: Callable[[], None] | None, clock: Callable[[], float]) -> None:
        self._on_change = on_change
        self._clock = clock
        self.appearances: dict[Uid, Appearance] = {}
        self._changed_appearances: dict[Uid, tuple[Appearance | None, ...]] = {}  # new appearances, in order
        self._ends_at: dict[Uid, float] = {}  # by pod taken back: until when the scheduler may process it
        self._nominated_uids: dict[str, set[Uid]] = {}  # by node: pods before their first bind call
        self._uid_by_key: dict[str, Uid] = {}  # unbound member pods by "namespace/name"
        self._planned_groups: set[GroupKey] = set()  # groups with planned claims that may be shown
        self._ever_shown: set[Uid] = set()  # unbound pods that the scheduler may know
        self._has_begun = False  # whether this process has begun to show pods
        self._taken_back_count = 0
        self._bypass_count = 0
        self._bypassed_at = 0.0

    @property
    def is_on(self) -> bool:
        """Return whether the scheduler reads its pods through Muster."""
        return self._on_change is not None

    @property
    def release_counts(self) -> ReleaseCounts:
        leaving_count = sum(until > self._clock() for until in self._ends_at.values())
        return ReleaseCounts(len(self.appearances), leaving_count, self._taken_back_count)

    @property
    def bypasses(self) -> Bypasses:
        count, age = self._bypass_count, self._clock() - self._bypassed_at
        return Bypasses(count, age) if count else Bypasses()

    def record_call(self, pod: PodRecord) -> None:
        """Record a call of the scheduler about a pod of Muster."""
        if self.is_on and pod.is_waiting and pod.uid not in self._ever_shown:
            self._bypass_count, self._bypassed_at = self._bypass_count + 1, self._clock()

    def scheduler_retries(self, pod: PodRecord) -> bool:
        """Return whether the scheduler tries a planned pod by itself, without a release by Muster."""
        return not self.is_on and not pod.is_gated

    def find_by_name(self, key: str) -> Uid | None:
        """Return the UID of the unbound pod of Muster with this namespace/name."""
        return self._uid_by_key.get(key)

    def may_show(self, pod: PodRecord, node: str) -> bool:
        """Return whether a pod that is planned for a node may be shown now.

        The pod may not be shown while it is gated, lacks its nomination, or may still be processed by the
        scheduler, or while too many pods are nominated for the node.
        """
        if pod.is_gated or lacks_nomination(pod, node) or self._ends_at.get(pod.uid, 0.0) > self._clock():
            return False
        return len(self._nominated_uids.get(node, ())) < MAX_NOMINATED_PODS

    def show(self, pod: PodRecord, appearance: Appearance) -> None:
        """Show a pod to the scheduler with this appearance."""
        self._ends_at.pop(pod.uid, None)
        self._ever_shown.add(pod.uid)
        self.appearances[pod.uid] = appearance
        if appearance.node:
            self._nominated_uids.setdefault(appearance.node, set()).add(pod.uid)
        self._record_appearance(pod.uid, appearance)

    def take_back(self, uid: Uid, was_called: bool) -> None:
        """Stop showing a pod.

        Args:
            uid: The UID of the pod.
            was_called: Whether a bind call for the pod was answered or is held.
        """
        self._remove_nominated(uid)
        if self.appearances.pop(uid, None) is not None:
            self._taken_back_count += 1
            self._ends_at[uid] = self._clock() + (_CALL_SECONDS if was_called else _NO_CALL_SECONDS)
            self._record_appearance(uid, None)
        elif was_called and uid in self._ends_at:
            self._ends_at[uid] = self._clock() + _CALL_SECONDS

    def record_claim(self, pod: PodRecord, old_claim: Claim | None, claim: Claim | None) -> None:
        """Process a change of the claim of a member pod."""
        if not self.is_on:
            return
        if pod.node:
            self.forget(pod)
            return
        if pod.is_waiting:
            self._uid_by_key[pod.key] = pod.uid
            if not self._has_begun:
                self._ever_shown.add(pod.uid)
        if claim is None or claim.stage is not ClaimStage.ANSWERED:
            self._remove_nominated(pod.uid)
        if claim is not None and claim.stage is ClaimStage.PLANNED:
            self.record_planned(pod.group)
        if claim is None or not claim.is_fixed:
            self.take_back(pod.uid, old_claim is not None and old_claim.stage >= ClaimStage.HELD)

    def forget(self, pod: PodRecord) -> None:
        """Forget a pod that is bound or gone: the watch shows this to the scheduler."""
        self._remove_nominated(pod.uid)
        self.appearances.pop(pod.uid, None)
        self._changed_appearances.pop(pod.uid, None)
        self._ends_at.pop(pod.uid, None)
        self._ever_shown.discard(pod.uid)
        if self._uid_by_key.get(pod.key) == pod.uid:
            del self._uid_by_key[pod.key]

    def record_foreign_pod(self, uid: Uid, is_unmanaged: bool) -> None:
        """Record a pod with Muster's scheduler name that Muster does not place.

        The scheduler sees the pod unchanged, unless the pod is left to another scheduler.
        """
        if self.is_on and not is_unmanaged:
            self._ever_shown.add(uid)
        self._record_appearance(uid, None if is_unmanaged else AS_STORED)

    def record_ended(self, uid: Uid) -> None:
        """Record that the scheduler has reported the end of an attempt."""
        self._ends_at.pop(uid, None)

    def record_fresh_start(self) -> None:
        """Record that the scheduler has listed all pods again, so that all earlier attempts have ended."""
        self._ends_at.clear()

    def retry(self, uid: Uid, lag_count: int) -> None:
        """Let a pod whose attempt has ended be shown again, after a pause.

        Args:
            uid: The UID of the pod.
            lag_count: The pause before the pod is shown, as a multiple of the scheduler's lag.
        """
        self._ends_at[uid] = self._clock() + lag_count * _LAG_SECONDS

    def record_planned(self, group: GroupKey) -> None:
        """Record that members of a group may have to be shown."""
        if self.is_on:
            self._planned_groups.add(group)

    def take_planned(self) -> set[GroupKey]:
        """Return the groups that may have members to show, and forget them."""
        self._has_begun = True
        groups, self._planned_groups = self._planned_groups, set()
        return groups

    def take_changes(self) -> list[Change]:
        """Return the changed appearances since the last call."""
        steps_by_uid, self._changed_appearances = self._changed_appearances, {}
        return [(uid, appearance) for uid, steps in steps_by_uid.items() for appearance in steps]

    def _remove_nominated(self, uid: Uid) -> None:
        """Remove a pod from the pods that are nominated for its node."""
        node = appearance.node if (appearance := self.appearances.get(uid)) else ""
        if uids := self._nominated_uids.get(node):
            uids.discard(uid)
            if not uids:
                del self._nominated_uids[node]

    def _record_appearance(self, uid: Uid, appearance: Appearance | None) -> None:
        """Report a changed appearance of a pod.

        If the pod was taken back before, the scheduler sees both changes.
        """
        if self._on_change is not None:
            was_taken_back = appearance is not None and None in self._changed_appearances.get(uid, ())
            self._changed_appearances[uid] = (None, appearance) if was_taken_back else (appearance,)
            self._on_change()


def lacks_nomination(pod: PodRecord, node: str) -> bool:
    """Return whether a pod may not be shown before the API server has its nominated node.

    Binding volumes and devices takes a while. Until then, autoscalers see only the nomination.
    """
    return pod.binds_late and pod.nominated_node != node
