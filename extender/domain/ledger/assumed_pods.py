"""Assumed pods of the verbs: answered, held and posted claims; and preemptions."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from extender.domain.ledger.claims import Claim, ClaimEvent, ClaimStage, Posting, allows
from extender.domain.ledger.pods import Pods
from extender.domain.ledger.state import Parts
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.queues.flavors import flavor_on
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.group_info import GroupInfo

Losses = Counter[tuple[GroupKey, str]]  # members by group and role
Options = Mapping[str, Iterable[PodRecord]]  # victims by node

_PATIENCE = 30.0  # seconds after which an unused grant is void


class Grant(msgspec.Struct, frozen=True):
    options: Options  # granted nodes, with the victims that are member pods
    expires: float  # monotonic, in seconds

    def losses(self, claimant: PodRecord | None, pods: Mapping[Uid, PodRecord]) -> Losses:
        """Return the members that `claimant` may still evict."""
        if claimant is not None and claimant.node:
            return Counter()
        chosen = self.options.get(claimant.nominated) if claimant is not None else None
        worst: Losses = Counter()
        for victims in self.options.values() if chosen is None else [chosen]:
            worst |= losses(pods[victim.uid] for victim in victims if victim.uid in pods)
        return worst


class Preemptions:
    """Preemptions that were granted to pods of other schedulers, and the evictions that they may still cause.

    The scheduler gets the nodes whose victims it may evict; it picks one, nominates it, and evicts later.
    Until the watch shows that, the next preemption is evaluated as if the victims were gone: those of the
    nominated node or, while that is not known, the worst case over all granted nodes.
    """

    def __init__(self, parts: Parts, pods: Pods) -> None:
        self._registry, self._claims = parts.registry, parts.claims
        self._clock, self._lock = parts.clock, parts.lock
        self._pods = pods.by_uid
        self._grants: dict[Uid, Grant] = {}

    def may_clear(
        self, claimant: Uid, victims: Mapping[str, Sequence[Uid]], is_confirmed: bool = False
    ) -> set[str]:
        """Return the nodes whose victims a pod of another scheduler may evict.

        The evictions break no gang and no start.

        A pod that neither the watch has shown nor the API server has confirmed may evict no pod of
        Muster: any caller of the port could have invented it.
        """
        with self._lock:
            is_real = is_confirmed or claimant in self._pods
            now = self._clock()
            self._grants.pop(claimant, None)
            self._grants = {uid: grant for uid, grant in self._grants.items() if grant.expires > now}
            grants = (grant.losses(self._pods.get(uid), self._pods) for uid, grant in self._grants.items())
            granted_before: Losses = sum(grants, start=Counter())
            options = {
                node: [pod for uid in uids if (pod := self._pods.get(uid)) and pod.group]
                for node, uids in victims.items()
            }
            granted = {
                node: pods
                for node, pods in options.items()
                if not pods or (is_real and self._could_lose(pods, granted_before))
            }
            if any(granted.values()):
                self._grants[claimant] = Grant(granted, now + _PATIENCE)
            return set(granted)

    def _could_lose(self, victims: Sequence[PodRecord], granted_before: Losses) -> bool:
        """Return whether the groups stay whole without these victims and those granted to others."""
        claims = (self._claims.get(pod.uid) for pod in victims)
        if any(claim is not None and claim.in_flight for claim in claims):
            return False
        lost = granted_before + losses(victims)
        return all(
            self._registry.group(key).could_lose(
                Counter({role: n for (group, role), n in lost.items() if group == key})
            )
            for key in {pod.group for pod in victims}
        )


def losses(victims: Iterable[PodRecord]) -> Losses:
    """Return the members that groups lose with `victims`; those that are being deleted are lost already."""
    return Counter((victim.group, victim.role) for victim in victims if victim.placed)


class Confirmation(msgspec.Struct, frozen=True):
    """Last check before binding."""

    posting: tuple[Claim, ...] = ()  # claims whose bindings are to be posted
    lost: tuple[Claim, ...] = ()  # claims that lost their node and were released


class AssumedPods:
    """Assumed pods: the nodes that a pod may use, and the stages of its claim.

    Filter assumes the pod on a node, a bind call holds it there, and it is posted with the whole group.
    `decided` returns the decisions published last.
    """

    def __init__(self, parts: Parts, pods: Pods, decided: Callable[[], Decisions]) -> None:
        self._registry, self._claims, self._moves = parts.registry, parts.claims, parts.moves
        self._releases, self._changes = parts.releases, parts.changes
        self._clock, self._lock = parts.clock, parts.lock
        self._all_pods, self._pods = pods, pods.by_uid
        self._decided = decided

    def assume(self, uid: Uid, nodes: Sequence[str]) -> list[str] | Reason:
        """Return the offered `nodes` that a pod of Muster may use; the claim moves with the answer.

        A member of a gang gets its planned node, else any other that fits. A group of one gets every
        node that fits, for the scheduler to choose, unless its queue says how pods are placed.
        """
        with self._lock:
            pod = self._pods.get(uid)
            claim = self._claims.get(uid)
            if pod is not None:
                self._releases.record_call(pod)
            if pod is None or claim is None:
                return self._why_not(pod)
            if claim.posting or claim.stage is ClaimStage.BOUND:  # a binding may have reached the API server
                return [claim.node] if claim.node in nodes else Reason.NO_ROOM
            group = self._registry.group(pod.group)
            if group.needs_no_barrier:
                fitting = self._all_that_fit(pod, self._interchangeable_nodes(claim, nodes))
                queue = self._registry.queues.get(self._registry.routes.queue_of(group))
                is_placed = queue is not None and queue.placement and claim.node in fitting
                return ([claim.node] if is_placed else fitting) or Reason.NO_ROOM
            if claim.node in nodes and (claim.stage.is_fixed or self._claims.fits(pod, claim.node)):
                return self._answer(pod, claim.node)
            # If the planned node is not offered, any other node will do on which the pod fits.
            fits = self._claims.rows_that_fit(pod)
            for node in self._interchangeable_nodes(claim, nodes):
                row = self._claims.capacity.row(node)
                if row is not None and fits[row] and self._claims.fits(pod, node):
                    return self._answer(pod, node)
            if list(nodes) != [pod.nominated]:
                text = f"the scheduler did not offer node {claim.node}"
                if group.attempt(pod.uid).refused_at is None:
                    self._all_pods.record_refused(pod, text, self._clock())
                self._registry.mark_dirty(pod.group)
                self._changes.notify()
            return Reason.NO_ROOM

    def hold(self, uid: Uid, node: str, token: int) -> Reason | None:
        """Hold a pod's claim for the bind call `token`; return the reason of a refusal."""
        with self._lock:
            pod, claim = self._pods.get(uid), self._claims.get(uid)
            if pod is not None:
                self._releases.record_call(pod)
            if pod is None or claim is None:
                return self._why_not(pod)
            if self._releases.is_on and not claim.is_fixed:  # the scheduler has not been shown the pod
                return Reason.NOT_READY
            if not allows(ClaimEvent.HOLD, claim.stage):
                return Reason.NO_ROOM
            if claim.node != node and claim.posting:  # a binding may have reached the API server
                return Reason.NO_ROOM
            if claim.node != node and not (
                self._claims.fits(pod, node) and self._interchangeable_nodes(claim, [node])
            ):
                return Reason.NO_ROOM
            self._moves.put(pod, ClaimEvent.HOLD, node, token, claim.posting)
            self._changes.notify()
            return None

    def confirm(self, key: GroupKey) -> Confirmation:
        """Return the bindings that may be posted, once bound and held members make a group whole.

        Every held node is checked once more. Members whose node is still valid may be posted, if they make
        the group whole and a decision on its present PodGroup starts it.
        """
        with self._lock:
            group, decisions = self._registry.groups.get(key), self._decided()
            decision = decisions.groups.get(key)
            if group is None or decision is None or not (decision.lets_members_start and group.exists):
                return Confirmation()
            is_barred = any(attempt.barred for attempt in group.attempts.values())
            if decisions.version < group.known_since or is_barred or not group.is_quorate():
                return Confirmation()
            claims = (self._claims.get(uid) for uid in group.pods)
            held = [claim for claim in claims if claim is not None and claim.stage is ClaimStage.HELD]
            lost, capacity = [], self._claims.capacity
            info = group.info
            apart = self._in_other_domains(info, held) if info and info.requires_domains else ()
            for claim in held:  # its capacity may be in use, its node gone, or in another domain by now
                is_suitable = capacity.is_suitable(claim.pod, claim.node) and claim.pod.uid not in apart
                if capacity.overcommitted(claim.node, claim.pod) or not is_suitable:
                    self.release(claim.pod.uid, claim.token)
                    lost.append(claim)
            left = [claim for claim in held if claim not in lost] if group.is_quorate() else []
            roles = group.joining_roles
            posting = tuple(claim for claim in left if roles is None or claim.pod.role in roles)
            for claim in posting:
                self._pass_to(claim, claim.token, (*claim.posting, Posting(claim.token, self._clock())))
            return Confirmation(posting, tuple(lost))

    def _in_other_domains(self, info: GroupInfo, held: Iterable[Claim]) -> set[Uid]:
        """Return the held members outside the domain of their set.

        It is the domain of members on nodes or with a posted binding; without these, that of most held ones.
        """
        members = (*info.waiting, *(pod for pod, _ in info.assumed))
        sets_of = {pod.uid: pod.pod_sets for pod in members}
        claims = filter(None, (self._claims.get(pod.uid) for pod in members))
        placed = [(sets_of[claim.pod.uid], claim.node) for claim in claims if claim.posting]
        placed += [(pod.pod_sets, pod.node) for pod in info.placed if pod.holds_capacity]
        domain, lost = self._claims.capacity.domain, set[Uid]()
        for pod_set in {each for sets in sets_of.values() for each in sets if each.is_required}:
            own = {domain(node, pod_set.level) for sets, node in placed if pod_set in sets}
            in_set = [claim for claim in held if pod_set in sets_of.get(claim.pod.uid, ())]
            now = {claim.pod.uid: domain(claim.node, pod_set.level) for claim in in_set}
            if not own:
                own = {at for at, _ in Counter(now.values()).most_common(1)}
            lost |= {uid for uid, at in now.items() if None in at or at not in own}
        return lost

    def release(self, uid: Uid, token: int) -> None:
        """End a bind call for a pod without a binding; the claim ends with the last call.

        A newer call keeps the claim, and so does a binding which is under way, because it may still
        take effect.
        """
        with self._lock:
            pod, claim = self._pods.get(uid), self._claims.get(uid)
            if pod is None or claim is None or token not in claim.calls:
                return
            posting = tuple(binding for binding in claim.posting if binding.token != token)
            if claim.token != token:
                self._pass_to(claim, claim.token, posting)
            elif posting:
                self._pass_to(claim, posting[-1].token, posting)
            elif allows(ClaimEvent.RELEASE, claim.stage):
                self._moves.end(pod, ClaimEvent.RELEASE)
            self._changes.notify()

    def record_binding_refused(self, uid: Uid, words: str) -> None:
        """Record that the API server permanently refuses the binding of a pod, with its message."""
        with self._lock:
            if (pod := self._pods.get(uid)) is not None:
                refused = f"its binding is refused: {words.removeprefix('refused: ')}"
                self._registry.group(pod.group).record_binding_refused(uid, refused)
                self._registry.mark_dirty(pod.group)
                self._changes.notify()

    def posted_before(self, instant: float) -> list[Claim]:
        """Return claims with all bindings posted before `instant`, unconfirmed by a watch since."""
        with self._lock:
            return [
                claim
                for claim in self._claims.in_stage(ClaimStage.POSTED)
                if claim.posting[-1].since < instant
            ]

    def fullness(self, uid: Uid, nodes: Sequence[str]) -> dict[str, float]:
        """Return by node the used part of its scarcest resource with the pod on it, 0 … 1."""
        with self._lock:
            pod = self._pods.get(uid)
            return {node: self._claims.fullness(pod, node) for node in nodes} if pod else {}

    def _pass_to(self, claim: Claim, token: int, posting: tuple[Posting, ...]) -> None:
        """Pass the claim to the call `token`, with the bindings in `posting` under way."""
        is_posted = any(binding.token == token for binding in posting)
        event = ClaimEvent.POST if is_posted else ClaimEvent.HOLD
        self._moves.put(claim.pod, event, claim.node, token, posting)

    def _answer(self, pod: PodRecord, node: str) -> list[str]:
        """Claim a node for a pod whose filter call is answered with it."""
        claim = self._claims.get(pod.uid)
        if claim is None or claim.node != node or not claim.stage.is_fixed:
            self._moves.put(pod, ClaimEvent.ANSWER, node)
            group = self._registry.group(pod.group)
            group.record_withdrawn(pod.uid)
            group.record_shown(pod.uid, node, self._clock())
            self._changes.record()
        return [node]

    def _all_that_fit(self, pod: PodRecord, nodes: Sequence[str]) -> list[str]:
        if len(nodes) == 1:
            return [node for node in nodes if self._claims.fits(pod, node)]
        fits = self._claims.rows_that_fit(pod)
        return [node for node in nodes if (row := self._claims.capacity.row(node)) is not None and fits[row]]

    def _interchangeable_nodes(self, claim: Claim, nodes: Sequence[str]) -> Sequence[str]:
        """Return those of `nodes` that may take the place of the claimed one.

        They have its flavor, if the queue has flavors. A pod whose topology is required has no other node.
        """
        info = self._registry.group(claim.pod.group).info
        if info is not None and info.requires_domains:
            return [node for node in nodes if node == claim.node]
        flavors, labels = self._registry.flavors_of(claim.pod.group), self._claims.capacity.labels
        part = flavor_on(flavors, labels(claim.node) or {}) if flavors else None
        if not flavors:
            return nodes
        return [node for node in nodes if node == claim.node or (part and part.nodes.has(labels(node) or {}))]

    def _why_not(self, pod: PodRecord | None) -> Reason:
        """Return why filter offers no node for a pod."""
        decision = self._decided().groups.get(pod.group) if pod else None
        if decision is None:
            return Reason.NOT_READY
        if decision.reason is not None:
            return decision.reason
        is_extra = decision.verdict is Verdict.STARTING  # surplus members come after the start
        return Reason.BEHIND_OTHERS if is_extra else Reason.NOT_READY
