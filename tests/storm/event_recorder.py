"""Recorder of all events of pods, nodes, PodGroups and Queues for the second judge."""

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.e2e.harness.client import Client
from tests.e2e.harness.follower import Follower, Following
from tests.e2e.harness.resources import NODES, POD_GROUPS, PODS, QUEUES
from tests.e2e.harness.waiting import wait_for
from tests.storm.facts import Fact, group_fact, node_fact, pod_fact, queue_fact
from tests.storm.second_judge import SecondJudge

Json = dict[str, Any]
FactReader = Callable[[Json, bool, int, float], Fact]
FACT_READERS: dict[Any, FactReader] = {
    QUEUES: queue_fact,
    NODES: node_fact,
    POD_GROUPS: group_fact,
    PODS: pod_fact,
}


class EventRecorder(Following):
    """`with EventRecorder(client) as recorder: ...; recorder.reviewed(deadline, sight, clock)`."""

    def __init__(self, client: Client) -> None:
        self._facts: list[Fact] = []
        self._last: dict[str, object] = {}
        self._lock = threading.Lock()
        self._followers = [
            Follower(client, kind, self._listener(read)) for kind, read in FACT_READERS.items()
        ]

    def reviewed(self, deadline: float, sight: float, clock: Callable[[float], float]) -> SecondJudge:
        """Return the second judge, after it has reviewed all events until now."""
        for follower in self._followers:
            follower.ask()
        wait_for(
            lambda: False not in [follower.is_settled() for follower in self._followers],
            what="recorder settled",
        )
        judge = SecondJudge(deadline, sight, clock)
        with self._lock:
            facts = list(self._facts)
        judge.review(facts, time.monotonic())
        return judge

    def _listener(self, read: FactReader) -> Callable[[str, Json, int], None]:
        def record(kind: str, item: Json, version: int) -> None:
            fact = read(item, kind == "DELETED", version, time.monotonic())
            self._keep(item["metadata"]["uid"], fact)

        return record

    def _keep(self, uid: str, fact: Fact) -> None:
        """Keep a fact, unless it only repeats the one before, as after a heartbeat."""
        comparable = {**vars(fact), "version": 0, "at": 0}
        with self._lock:
            if self._last.get(uid) != comparable:
                self._last[uid] = comparable
                self._facts.append(fact)
            if fact.gone:
                self._last.pop(uid, None)
