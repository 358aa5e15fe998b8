"""Assumed pods of the verbs: their answered, held and posted claims; and preemptions by other schedulers."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from extender.domain.ledger.claims import Claim, ClaimEvent, ClaimStage, Posting, allows
from extender.domain.ledger.pods import Pods
from extender.domain.ledger.state import Core
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.queues.flavors import flavor_on
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.group_info import GroupInfo

LossCounts = Counter[tuple[GroupKey, str]]  # number of members by group and role
VictimsByNode = Mapping[str, Iterable[PodRecord]]  # victims by node

_GRANT_SECONDS = 30.0  # seconds after which an unused grant expires


class Grant(msgspec.Struct, frozen=True):
    """Preemption that was granted to a pod of another scheduler."""

    victims_by_node: VictimsByNode  # granted nodes, with victims that are member pods
    expires_at: float  # time of the expiry: monotonic, in seconds

    def losses(self, claimant: PodRecord | None, pods: Mapping[Uid, PodRecord]) -> LossCounts:
        """Return the members that groups still lose by this grant.

        The result is empty once the claimant has a node. If the scheduler has not yet chosen one of the
        granted nodes, the result is the worst case over all of them.

        Args:
            claimant: The pod that got the grant; None if it is unknown.
            pods: The pods that still exist.
        """
        if claimant is not None and claimant.node:
            return Counter()
        chosen_victims = self.victims_by_node.get(claimant.nominated_node) if claimant is not None else None
        worst_losses: LossCounts = Counter()
        for victims in self.victims_by_node.values() if chosen_victims is None else [chosen_victims]:
            worst_losses |= count_losses(pods[victim.uid] for victim in victims if victim.uid in pods)
        return worst_losses


class Preemptions:
    """Preemptions that were granted to pods of other schedulers, and the evictions that they may still cause.

    The scheduler gets the nodes whose victims it may evict. It chooses one node, nominates it, and evicts the
    victims later. Until the watch shows these evictions, the next preemption is evaluated as if the victims
    were gone: the victims on the nominated node or, while no node is nominated, the worst case over all
    granted nodes.
    """

    def __init__(self, core: Core, pods: Pods) -> None:
        self._registry, self._claims = core.registry, core.claims
        self._clock, self._lock = core.clock, core.lock
        self._pods = pods.by_uid
        self._grants: dict[Uid, Grant] = {}

    def grant_nodes(
        self, claimant: Uid, victims: Mapping[str, Sequence[Uid]], is_confirmed: bool = False
    ) -> set[str]:
        """Grant nodes to a pod of another scheduler. Return the nodes whose victims the pod may evict.

        Evictions on these nodes break no gang, and stop no group that starts. If neither the watch has shown
        the pod nor the API server has confirmed it, it may evict no pod of Muster: any client that can call
        the extender could have invented this pod.

        Args:
            claimant: The pod of the other scheduler.
            victims: The victims by node.
            is_confirmed: Whether the API server has confirmed that the claimant exists.
        """
        with self._lock:
            is_real = is_confirmed or claimant in self._pods
            now = self._clock()
            self._grants.pop(claimant, None)
            self._grants = {uid: grant for uid, grant in self._grants.items() if grant.expires_at > now}
            old_losses = (g.losses(self._pods.get(uid), self._pods) for uid, g in self._grants.items())
            earlier_losses: LossCounts = sum(old_losses, start=Counter())
            member_victims = {
                node: [pod for uid in uids if (pod := self._pods.get(uid)) and pod.group]
                for node, uids in victims.items()
            }
            granted_victims = {
                node: pods
                for node, pods in member_victims.items()
                if not pods or (is_real and self._may_lose(pods, earlier_losses))
            }
            if any(granted_victims.values()):
                self._grants[claimant] = Grant(granted_victims, now + _GRANT_SECONDS)
            return set(granted_victims)

    def _may_lose(self, victims: Sequence[PodRecord], earlier_losses: LossCounts) -> bool:
        """Return whether the groups stay whole without these victims and the victims of earlier grants."""
        claims = (self._claims.get(pod.uid) for pod in victims)
        if any(claim is not None and claim.is_in_flight for claim in claims):
            return False
        all_losses = earlier_losses + count_losses(victims)
        return all(
            self._registry.group(key).could_lose(
                Counter({role: n for (group, role), n in all_losses.items() if group == key})
            )
            for key in {pod.group for pod in victims}
        )


def count_losses(victims: Iterable[PodRecord]) -> LossCounts:
    """Return the number of members that groups lose with `victims`. Terminating victims are already lost."""
    return Counter((victim.group, victim.role) for victim in victims if victim.is_placed)


class Confirmation(msgspec.Struct, frozen=True):
    """Result of the last check before binding."""

    claims_to_post: tuple[Claim, ...] = ()  # claims whose bindings have to be posted
    lost_claims: tuple[Claim, ...] = ()  # claims that lost their node and were released


class AssumedPods:
    """Assumed pods: the nodes that a pod may use, and the stages of its claim.

    A filter call assumes the pod on a node, and a bind call holds the pod there. Muster posts the binding of
    the pod together with the bindings of the whole group.

    Args:
        core: The objects that all parts of the ledger share.
        pods: The pods of the watch.
        read_decisions: Returns the last published decisions.
    """

    def __init__(self, core: Core, pods: Pods, read_decisions: Callable[[], Decisions]) -> None:
        self._registry, self._claims, self._transitions = core.registry, core.claims, core.transitions
        self._releases, self._changes = core.releases, core.changes
        self._clock, self._lock = core.clock, core.lock
        self._all_pods, self._pods = pods, pods.by_uid
        self._read_decisions = read_decisions

    def assume(self, uid: Uid, nodes: Sequence[str]) -> list[str] | Reason:
        """Return the offered nodes that a pod of Muster may use, or the reason why there are none.

        A member of a gang gets its planned node, or else any other node on which it fits; its claim moves to
        this node. A group of one pod gets every node on which the pod fits, so that the scheduler can choose,
        unless its queue has a placement policy.
        """
        with self._lock:
            pod = self._pods.get(uid)
            claim = self._claims.get(uid)
            if pod is not None:
                self._releases.record_call(pod)
            if pod is None or claim is None:
                return self._refusal_reason(pod)
            if claim.postings or claim.stage is ClaimStage.BOUND:  # a binding may have reached the API server
                return [claim.node] if claim.node in nodes else Reason.NO_ROOM
            group = self._registry.group(pod.group)
            if group.needs_no_barrier:
                fitting_nodes = self._fitting_nodes(pod, self._interchangeable_nodes(claim, nodes))
                queue = self._registry.queues.get(self._registry.routes.queue_of(group))
                has_placement = queue is not None and queue.placement and claim.node in fitting_nodes
                return ([claim.node] if has_placement else fitting_nodes) or Reason.NO_ROOM
            if claim.node in nodes and (claim.stage.is_fixed or self._claims.fits(pod, claim.node)):
                return self._claim_node(pod, claim.node)
            # If the planned node is not offered, any other node is allowed on which the pod fits.
            fits = self._claims.rows_that_fit(pod)
            for node in self._interchangeable_nodes(claim, nodes):
                row = self._claims.capacity.row(node)
                if row is not None and fits[row] and self._claims.fits(pod, node):
                    return self._claim_node(pod, node)
            if list(nodes) != [pod.nominated_node]:
                text = f"the scheduler did not offer node {claim.node}"
                if group.attempt(pod.uid).refused_at is None:
                    self._all_pods.record_refused(pod, text, self._clock())
                self._registry.mark_dirty(pod.group)
                self._changes.notify()
            return Reason.NO_ROOM

    def hold(self, uid: Uid, node: str, token: int) -> Reason | None:
        """Hold a pod's claim for a bind call. Return the reason of a refusal; None if the claim is held.

        Args:
            uid: The UID of the pod.
            node: The node to bind to.
            token: The token of the bind call.
        """
        with self._lock:
            pod, claim = self._pods.get(uid), self._claims.get(uid)
            if pod is not None:
                self._releases.record_call(pod)
            if pod is None or claim is None:
                return self._refusal_reason(pod)
            if self._releases.is_on and not claim.is_fixed:  # the scheduler does not know the pod yet
                return Reason.NOT_READY
            if not allows(ClaimEvent.HOLD, claim.stage):
                return Reason.NO_ROOM
            if claim.node != node and claim.postings:  # a binding may have reached the API server
                return Reason.NO_ROOM
            if claim.node != node and not (
                self._claims.fits(pod, node) and self._interchangeable_nodes(claim, [node])
            ):
                return Reason.NO_ROOM
            self._transitions.put(pod, ClaimEvent.HOLD, node, token, claim.postings)
            self._changes.notify()
            return None

    def confirm(self, key: GroupKey) -> Confirmation:
        """Return the bindings that may be posted, once bound and held members make a group whole.

        Every held node is checked once more. Members whose node is still valid may be posted if they make the
        group whole, and if a decision on its current PodGroup starts the group.
        """
        with self._lock:
            group, decisions = self._registry.groups.get(key), self._read_decisions()
            decision = decisions.groups.get(key)
            if group is None or decision is None or not (decision.lets_members_start and group.exists):
                return Confirmation()
            is_barred = any(attempt.binding_fault for attempt in group.attempts.values())
            if decisions.version < group.known_since or is_barred or not group.is_quorate():
                return Confirmation()
            claims = (self._claims.get(uid) for uid in group.pods)
            held_claims = [claim for claim in claims if claim is not None and claim.stage is ClaimStage.HELD]
            lost_claims, capacity = [], self._claims.capacity
            info = group.info
            lost_uids = self._in_other_domains(info, held_claims) if info and info.requires_domains else ()
            for claim in held_claims:  # the node may be full, deleted, or in another domain by now
                is_suitable = capacity.is_suitable(claim.pod, claim.node) and claim.pod.uid not in lost_uids
                if capacity.is_overcommitted(claim.node, claim.pod) or not is_suitable:
                    self.release(claim.pod.uid, claim.token)
                    lost_claims.append(claim)
            remaining_claims = [c for c in held_claims if c not in lost_claims] if group.is_quorate() else []
            roles = group.joining_roles
            claims_to_post = tuple(c for c in remaining_claims if roles is None or c.pod.role in roles)
            for claim in claims_to_post:
                self._set_call(claim, claim.token, (*claim.postings, Posting(claim.token, self._clock())))
            return Confirmation(claims_to_post, tuple(lost_claims))

    def _in_other_domains(self, info: GroupInfo, held_claims: Iterable[Claim]) -> set[Uid]:
        """Return the held members whose node is outside the domain of their topology set.

        The domain of a set is the domain of its members that are on nodes, or whose binding was posted.
        Without such members, it is the domain of most held members.
        """
        members = (*info.waiting_pods, *(pod for pod, _ in info.assumed_pods))
        sets_by_uid = {pod.uid: pod.pod_sets for pod in members}
        claims = filter(None, (self._claims.get(pod.uid) for pod in members))
        placed_sets = [(sets_by_uid[claim.pod.uid], claim.node) for claim in claims if claim.postings]
        placed_sets += [(pod.pod_sets, pod.node) for pod in info.placed_pods if pod.holds_capacity]
        domain, uids = self._claims.capacity.domain, set[Uid]()
        for pod_set in {each for sets in sets_by_uid.values() for each in sets if each.is_required}:
            set_domains = {domain(node, pod_set.level) for sets, node in placed_sets if pod_set in sets}
            claims_in_set = [claim for claim in held_claims if pod_set in sets_by_uid.get(claim.pod.uid, ())]
            domain_by_uid = {claim.pod.uid: domain(claim.node, pod_set.level) for claim in claims_in_set}
            if not set_domains:
                set_domains = {at for at, _ in Counter(domain_by_uid.values()).most_common(1)}
            uids |= {uid for uid, at in domain_by_uid.items() if None in at or at not in set_domains}
        return uids

    def release(self, uid: Uid, token: int) -> None:
        """End a bind call that has not bound its pod.

        With the last call for the pod, the claim of the pod ends. The claim stays if a newer call holds it,
        or if a binding is under way that may still take effect.
        """
        with self._lock:
            pod, claim = self._pods.get(uid), self._claims.get(uid)
            if pod is None or claim is None or token not in claim.call_tokens:
                return
            other_postings = tuple(binding for binding in claim.postings if binding.token != token)
            if claim.token != token:
                self._set_call(claim, claim.token, other_postings)
            elif other_postings:
                self._set_call(claim, other_postings[-1].token, other_postings)
            elif allows(ClaimEvent.RELEASE, claim.stage):
                self._transitions.end(pod, ClaimEvent.RELEASE)
            self._changes.notify()

    def record_binding_refused(self, uid: Uid, message: str) -> None:
        """Record that the API server permanently refuses the binding of a pod, with the server's message."""
        with self._lock:
            if (pod := self._pods.get(uid)) is not None:
                refusal_text = f"its binding is refused: {message.removeprefix('refused: ')}"
                self._registry.group(pod.group).record_binding_refused(uid, refusal_text)
                self._registry.mark_dirty(pod.group)
                self._changes.notify()

    def posted_before(self, instant: float) -> list[Claim]:
        """Return the claims whose bindings were all posted before `instant`.

        A claim is left out if the watch has shown in the meantime that its pod is bound.
        """
        with self._lock:
            return [
                claim
                for claim in self._claims.in_stage(ClaimStage.POSTED)
                if claim.postings[-1].posted_at < instant
            ]

    def fullness(self, uid: Uid, nodes: Sequence[str]) -> dict[str, float]:
        """Return, by node, the used part (0 to 1) of the node's scarcest resource if the pod ran there."""
        with self._lock:
            pod = self._pods.get(uid)
            return {node: self._claims.fullness(pod, node) for node in nodes} if pod else {}

    def _set_call(self, claim: Claim, token: int, postings: tuple[Posting, ...]) -> None:
        """Assign the claim to the call with this token, while the bindings in `postings` are under way."""
        is_posted = any(binding.token == token for binding in postings)
        event = ClaimEvent.POST if is_posted else ClaimEvent.HOLD
        self._transitions.put(claim.pod, event, claim.node, token, postings)

    def _claim_node(self, pod: PodRecord, node: str) -> list[str]:
        """Claim a node for a pod, and return it as the answer of the filter call."""
        claim = self._claims.get(pod.uid)
        if claim is None or claim.node != node or not claim.stage.is_fixed:
            self._transitions.put(pod, ClaimEvent.ANSWER, node)
            group = self._registry.group(pod.group)
            group.record_withdrawn(pod.uid)
            group.record_shown(pod.uid, node, self._clock())
            self._changes.record()
        return [node]

    def _fitting_nodes(self, pod: PodRecord, nodes: Sequence[str]) -> list[str]:
        """Return the nodes on which a pod fits."""
        if len(nodes) == 1:
            return [node for node in nodes if self._claims.fits(pod, node)]
        fits = self._claims.rows_that_fit(pod)
        return [node for node in nodes if (row := self._claims.capacity.row(node)) is not None and fits[row]]

    def _interchangeable_nodes(self, claim: Claim, nodes: Sequence[str]) -> Sequence[str]:
        """Return the nodes among `nodes` that may replace the claimed node.

        If the queue has flavors, these nodes have the flavor of the claimed node. A pod that requires a
        topology domain can use no other node.
        """
        info = self._registry.group(claim.pod.group).info
        if info is not None and info.requires_domains:
            return [node for node in nodes if node == claim.node]
        flavors, labels = self._registry.flavors_of(claim.pod.group), self._claims.capacity.labels
        part = flavor_on(flavors, labels(claim.node) or {}) if flavors else None
        if not flavors:
            return nodes
        return [node for node in nodes if node == claim.node or (part and part.nodes.has(labels(node) or {}))]

    def _refusal_reason(self, pod: PodRecord | None) -> Reason:
        """Return why filter offers no node for a pod."""
        decision = self._read_decisions().groups.get(pod.group) if pod else None
        if decision is None:
            return Reason.NOT_READY
        if decision.reason is not None:
            return decision.reason
        is_surplus = decision.verdict is Verdict.STARTING  # members that are not needed come after the start
        return Reason.BEHIND_OTHERS if is_surplus else Reason.NOT_READY
