"""The loop: one pod at a time, from the queue to a node, by the tests of its own and then the extender's.

A pod's nominated node is tried first, alone; only if it does not do are all nodes looked at. The pod is then
assumed to stand on the chosen node and bound in a thread of its own, so that the loop goes on while the
extender holds the call. Pods of `default-scheduler` are placed, too, without the extender, as the cluster's
own scheduler would.
"""

import random
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from extender.sim.apiserver.kinds import PODS, Json
from extender.sim.apiserver.refusals import Refusal
from extender.sim.apiserver.rules import condition, set_condition
from extender.sim.apiserver.service import Service
from extender.sim.scheduler.extender import Extender, ExtenderError
from extender.sim.scheduler.informer import Informer
from extender.sim.scheduler.nodes import Nodes, Standing
from extender.sim.scheduler.queue import QueuedPod, SchedulingQueue

EXTENDED = frozenset({"muster", "volcano"})
PLAIN = "default-scheduler"
_SCORE_WEIGHT = 15  # of the extender's scores; that much outweighs the loop's own


class Unschedulable(Exception):
    """No node does. `by_extender`: it had a say, so that more kinds of event may help."""

    def __init__(self, faults: Mapping[str, str], by_extender: bool) -> None:
        super().__init__()
        self.faults = faults  # by node; the extender may have left some out
        self.by_extender = by_extender

    def words(self, nodes: int) -> str:
        counted = sorted(Counter(self.faults.values()).items())
        told = ", ".join(f"{count} {words}" for words, count in counted)
        return f"0/{nodes} nodes are available: {told}." if nodes else "no nodes available"


class Scheduler:
    def __init__(
        self,
        service: Service,
        extender: Extender,
        dice: random.Random | None = None,
        extended: frozenset[str] = EXTENDED,
    ) -> None:
        self._service = service
        self._extender = extender
        self._dice = dice or random.Random()
        self._extended = extended
        self._lock = threading.RLock()
        self._nodes = Nodes()
        self.queue = SchedulingQueue()
        self._informer = Informer(service.store, self._nodes, self._lock, self.queue, {*extended, PLAIN})
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._informer.start()
        self._thread.start()

    def stop(self) -> None:
        self._informer.stop()
        self.queue.close()
        self._thread.join(1)
        self._extender.close()

    @property
    def busy(self) -> bool:
        return self.queue.busy or self._informer.behind

    def _run(self) -> None:
        while item := self.queue.pop():
            self._schedule(item)

    def _schedule(self, item: QueuedPod) -> None:
        pod = item.pod
        if "deletionTimestamp" in pod["metadata"]:
            return self.queue.forget(item.uid)
        try:
            node = self._choose(pod)
        except Unschedulable as fault:
            self.queue.park(item, by_extender=fault.by_extender)
            self._tell(pod, "Unschedulable", fault.words(self._nodes.count))
        except ExtenderError as fault:
            self.queue.punish(item)
            self._tell(pod, "SchedulerError", str(fault))
        else:
            self._assume(item, node)

    # ---- choosing

    def _choose(self, pod: Json) -> str:
        with self._lock:
            standing, names = self._nodes.standing(pod), self._nodes.names()
        earlier: Mapping[str, str] = {}
        if (nominated := pod["status"].get("nominatedNodeName")) in names:
            try:
                return self._best(pod, standing, [nominated], {})
            except Unschedulable as fault:
                earlier = fault.faults
        return self._best(pod, standing, names, earlier)

    def _best(self, pod: Json, standing: Standing, names: list[str], earlier: Mapping[str, str]) -> str:
        """The best node among these; `earlier` is what was found wrong in this try so far.

        Raises Unschedulable, ExtenderError.
        """
        with self._lock:
            fit, faults = self._nodes.feasible(standing, names)
        if not fit:
            raise Unschedulable({**earlier, **faults}, by_extender=False)
        if pod["spec"]["schedulerName"] in self._extended:
            filtered = self._extender.filter(pod, fit)
            if not filtered.nodes:
                raise Unschedulable({**earlier, **faults, **filtered.refusals}, by_extender=True)
            fit = filtered.nodes
        return fit[0] if len(fit) == 1 else self._scored(pod, standing, fit)

    def _scored(self, pod: Json, standing: Standing, fit: list[str]) -> str:
        """The emptiest node, unless the extender scores; ties are left to chance."""
        scores: dict[str, int] = {}
        if self._extender.scores and pod["spec"]["schedulerName"] in self._extended:
            with suppress(ExtenderError):
                scores = self._extender.prioritize(pod, fit)
        with self._lock:
            total = {
                name: scores.get(name, 0) * _SCORE_WEIGHT * 10
                + round(100 * (1 - self._nodes.load(standing, name)))
                for name in fit
            }
        best = max(total.values())
        return self._dice.choice([name for name in fit if total[name] == best])

    # ---- binding

    def _assume(self, item: QueuedPod, node: str) -> None:
        with self._lock:
            self._nodes.place(item.pod, node)
        threading.Thread(target=self._bind, args=[item, node], name=f"bind {item.uid}", daemon=True).start()

    def _bind(self, item: QueuedPod, node: str) -> None:
        """The queue forgets a bound pod when the watch shows it: what came before must not bring it back."""
        try:
            self._post(item.pod, node)
        except (ExtenderError, Refusal) as fault:
            self._unassume(item, str(fault))

    def _post(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        if pod["spec"]["schedulerName"] in self._extended:
            return self._extender.bind(pod, node)
        binding = {"metadata": {"uid": meta["uid"]}, "target": {"kind": "Node", "name": node}}
        self._service.bind(meta["namespace"], meta["name"], binding)

    def _unassume(self, item: QueuedPod, error: str) -> None:
        """The room is free again, which all who wait hear; a pod that was bound all the same is let be."""
        meta = item.pod["metadata"]
        found = self._service.store.get(PODS, meta["namespace"], meta["name"])
        if found is None or found["metadata"]["uid"] != item.uid or found["spec"].get("nodeName"):
            return
        with self._lock:
            self._nodes.remove(item.uid)
        self.queue.wake(lambda other: other is not item)
        self.queue.punish(item)
        self._tell(item.pod, "SchedulerError", f"binding rejected: {error}")

    # ---- telling

    def _tell(self, pod: Json, reason: str, message: str) -> None:
        """The pod's condition, written when it is new; a nomination that came to nothing is taken back."""
        meta = pod["metadata"]

        def change(found: Json) -> Json:
            status = {name: value for name, value in found["status"].items() if name != "nominatedNodeName"}
            set_condition(status, condition("PodScheduled", "False", reason, message))
            return {**found, "metadata": {"uid": meta["uid"]}, "status": status}

        with suppress(Refusal):
            self._service.amend(PODS, meta["namespace"], meta["name"], change, "status")
