"""Follows pods, nodes, PodGroups and Queues for the second judge, from the first version on."""

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.e2e.harness.client import Client
from tests.e2e.harness.follower import Follower, Following
from tests.e2e.harness.resources import NODES, POD_GROUPS, PODS, QUEUES
from tests.e2e.harness.waiting import wait_for
from tests.storm.second_judge import SecondJudge
from tests.storm.testimony import Fact, group_fact, node_fact, pod_fact, queue_fact

Json = dict[str, Any]
Reading = Callable[[Json, bool, int, float], Fact]
READINGS: dict[Any, Reading] = {
    QUEUES: queue_fact,
    NODES: node_fact,
    POD_GROUPS: group_fact,
    PODS: pod_fact,
}


class Witness(Following):
    """`with Witness(client) as witness: ...; witness.reviewed(deadline, sight, clock)`."""

    def __init__(self, client: Client) -> None:
        self._facts: list[Fact] = []
        self._last: dict[str, object] = {}
        self._lock = threading.Lock()
        self._followers = [Follower(client, kind, self._listener(read)) for kind, read in READINGS.items()]

    def reviewed(self, deadline: float, sight: float, clock: Callable[[float], float]) -> SecondJudge:
        """Return the judge's review of all events until now."""
        for follower in self._followers:
            follower.ask()
        wait_for(lambda: False not in [each.settled() for each in self._followers], what="witness settled")
        review = SecondJudge(deadline, sight, clock)
        with self._lock:
            facts = list(self._facts)
        review.hear(facts, time.monotonic())
        return review

    def _listener(self, read: Reading) -> Callable[[str, Json, int], None]:
        def listen(kind: str, item: Json, version: int) -> None:
            fact = read(item, kind == "DELETED", version, time.monotonic())
            self._keep(item["metadata"]["uid"], fact)

        return listen

    def _keep(self, uid: str, fact: Fact) -> None:
        """Keep a fact, unless it changes nothing that is checked, as a heartbeat does."""
        comparable = {**vars(fact), "version": 0, "at": 0}
        with self._lock:
            if self._last.get(uid) != comparable:
                self._last[uid] = comparable
                self._facts.append(fact)
            if fact.gone:
                self._last.pop(uid, None)
