"""Asks an autoscaler for the nodes that a group lacks, by a ProvisioningRequest, where its queue says so.

A request is made once the group has lacked room for a while. It is deleted when the group starts, is gone,
waits for something else, or needs other nodes. One that failed stays, since the autoscaler has given up, and
the group says so; whoever deletes it has a new one made.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from extender.api.objects.cluster import ProvisioningRequest
from extender.controllers.controller import ControllerContext
from extender.controllers.paced import PacedController
from extender.controllers.provisioning_objects import (
    ProvisioningRequests,
    request_body,
    template_body,
    template_name,
)
from extender.controllers.provisioning_queues import ProvisioningQueues
from extender.domain.decisions.decisions import Decisions
from extender.domain.decisions.pod_conditions import ConditionPolicy
from extender.domain.decisions.provisioning import NodesWanted, is_spent, wanted_request
from extender.domain.model.records import GroupKey
from extender.domain.model.token_bucket import TokenBucket

LASTING = 5.0  # seconds for which a group has to need the same before it is asked for
_AGAIN = 1.0  # seconds until a group that found no token is looked at again
_WITHDRAWN_RATE, _WITHDRAWN_BURST = 20.0, 50  # deletions per second, and at once


class _Turn(NamedTuple):
    """What a group needs, and since when."""

    name: str  # of the request
    since: float  # monotonic, in seconds


class ProvisioningController(PacedController[GroupKey]):
    """A request is three writes or more, so few are made at once."""

    name = "provisioning-requests"
    rate, burst = 5.0, 20

    def __init__(
        self,
        context: ControllerContext,
        asking: ProvisioningQueues,
        requests: ProvisioningRequests,
        policy: ConditionPolicy,
    ) -> None:
        self._asking = asking
        self._requests = requests
        self._policy = policy
        self._queue_turns = asking.turns()
        super().__init__(context)
        requests.listen(self._see)

    def prepare(self) -> None:
        super().prepare()
        self._withdrawals = TokenBucket(_WITHDRAWN_RATE, _WITHDRAWN_BURST, self._clock())
        self._turns: dict[GroupKey, _Turn] = {}
        self._made: dict[GroupKey, str] = {}  # the request that is being made, or was, by this process

    def rest(self) -> None:
        super().rest()
        self._turns.clear()
        self._made.clear()

    def _see(self, key: GroupKey, gone: bool) -> None:
        if gone:
            self._made.pop(key, None)
        self._queue.add(key)

    # ---- what is due

    def due(self, decisions: Decisions) -> Iterator[GroupKey]:
        for key in self._changed_groups.of(decisions):
            decision = decisions.groups.get(key)
            if key in self._turns or self._requests.of(key) or (decision and self._asking.of(decision.queue)):
                yield key
        yield from self._queue_turns.groups(decisions)

    # ---- one group

    def reconcile(self, key: GroupKey) -> None:
        if not (self._asking.served() and self._is_judged(key)):  # until then, what is there may be needed
            return self._queue.move(key, _AGAIN)
        wanted = self._wanted(key)
        if not self._withdraw_others(key, wanted):
            self._queue.move(key, _AGAIN)
        elif wanted is None:
            self._forget(key)
        elif self._made.get(key) != wanted.name:
            self._make_in_turn(key, wanted)

    def _withdraw_others(self, key: GroupKey, wanted: NodesWanted | None) -> bool:
        """As many as the budget allows; whether that was all. One that is being deleted needs no token."""
        others = [
            each.metadata
            for each in self._requests.of(key)
            if not (each.metadata.deletion_timestamp or _serves(each, wanted))
        ]
        allowed = self._withdrawals.take_up_to(self._clock(), len(others))
        for meta in others[:allowed]:
            delete = partial(self._cluster.delete_provisioning_request, meta.namespace, meta.name, meta.uid)
            self.write(key, delete, of=meta.uid)
        return allowed == len(others)

    def _is_judged(self, key: GroupKey) -> bool:
        """Also true of a group that is gone."""
        return key in self._decisions.groups or self._ledger.group_record(key) is None

    def _wanted(self, key: GroupKey) -> NodesWanted | None:
        decision, group = self._decisions.groups.get(key), self._ledger.group_record(key)
        if decision is None or group is None or not self._policy.nodes_help(decision):
            return None
        provisioning = self._asking.of(decision.queue)
        return wanted_request(group, provisioning, self._ledger.members(key)) if provisioning else None

    def _forget(self, key: GroupKey) -> None:
        self._turns.pop(key, None)
        self._made.pop(key, None)
        self._parked.pop(key, None)
        self._queue.forget(key)

    def _make_in_turn(self, key: GroupKey, wanted: NodesWanted) -> None:
        """A request that is there already was made by an earlier leader, which may have ended before all
        templates were there: they are made again."""
        now, turn = self._clock(), self._turns.get(key)
        if turn is None or turn.name != wanted.name:
            turn = self._turns[key] = _Turn(wanted.name, now)
        left = turn.since + LASTING - now
        if left > 0.0:
            self._park(key, wanted.name, left)
        elif not self._budget.take(now):
            self._park(key, wanted.name, _AGAIN)
        else:
            self._made[key] = wanted.name
            self.write(key, partial(self._make, key, wanted), undone=partial(self._undone, key))

    def _undone(self, key: GroupKey) -> None:
        self._made.pop(key, None)

    def _make(self, key: GroupKey, wanted: NodesWanted) -> None:
        """The request first: its templates belong to it. While those of an earlier one of this name are still
        there, this fails and is tried again. Nothing is made if the group needs something else by now."""
        group = self._ledger.group_record(key)
        if group is None or self._made.get(key) != wanted.name:
            return
        cluster, namespace = self._cluster, group.namespace
        pods = [cluster.whole_pod(namespace, each.like.name) for each in wanted.pod_sets]
        uid = cluster.create_provisioning_request(namespace, request_body(wanted, group))
        for number, pod in enumerate(pods):
            name = template_name(wanted, number)
            cluster.create_pod_template(namespace, template_body(name, wanted, uid, pod), uid)


def _serves(request: ProvisioningRequest, wanted: NodesWanted | None) -> bool:
    """Whether a request is the wanted one, and still brings or keeps nodes."""
    named = wanted is not None and request.metadata.name == wanted.name
    return named and not is_spent(request.status.conditions)
