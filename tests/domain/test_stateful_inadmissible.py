"""Any course of events among many that wait: with or without sleepers, the same is decided."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.cluster import Taint
from extender.api.objects.queues import QueueFlavor, QueueLimits, RunningLimit
from extender.domain.model.reasons import Verdict
from tests.domain.builders import (
    anti_affinity,
    foreign_pod,
    group,
    node,
    on_flavor,
    pod,
    preemption,
    queue,
    shared,
)
from tests.domain.decided_twice import DecidedTwice
from tests.domain.inadmissible_world import (
    FLAVORS,
    NODES,
    QUEUES,
    RUNNING,
    SHARED,
    USERS,
    WAITING,
    crowd,
    full_cluster,
)
from tests.domain.world import gang, key, timestamp
from tests.property_examples import examples

FOREIGN_PODS = tuple(f"s{n}" for n in range(6))
GANGS = tuple(f"g{n}" for n in range(6))
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")},
    {"annotations": {keys.REQUIRED_TOPOLOGY: "flavor"}},
    {"annotations": {keys.PREFERRED_TOPOLOGY: "flavor"}},
)


class Waiting(DecidedTwice):
    """Any events on a crowd, most of them among those that wait."""

    @initialize(
        ages=st.sampled_from([0.0, 590.0, 10_000.0]),
        specs=st.tuples(
            *[
                st.fixed_dictionaries(
                    {},
                    optional={
                        "strategy": st.sampled_from(["fifo", "priority", "rotation", "mixed"]),
                        "deserved": st.sampled_from([{"cpu": "1"}, {"cpu": "4"}]),
                        "capability": st.sampled_from([{"cpu": "2"}, {"cpu": "5"}]),
                        "ageing": st.sampled_from([0, 8]),
                        "limits": st.sampled_from(
                            [
                                QueueLimits(groups=1),
                                QueueLimits(per_user=RunningLimit(groups=1)),
                                QueueLimits(per_user=RunningLimit(pods=2)),
                                QueueLimits(groups=2, per_namespace=RunningLimit(pods=2)),
                            ]
                        ),
                        "reclaimable": st.booleans(),
                        "preemption": st.sampled_from(
                            [
                                preemption(unmanaged="LowerPriority"),
                                preemption(at_most="20m"),
                                preemption(at_most="15m", after="1m", patience="0.2"),
                            ]
                        ),
                    },
                )
            ]
            * 3
        ),
    )
    def begin(self, ages: float, specs: tuple[dict[str, Any], ...]) -> None:
        self.world = crowd(ages, **dict(zip(QUEUES, specs, strict=True)))
        self.count = 0

    @rule(
        members=st.integers(1, 3),
        spare=st.integers(0, 1),
        cpu=st.sampled_from(["0.5", "1", "1", "2", "9"]),
        where=st.sampled_from(QUEUES),
        priority=st.sampled_from([0, 0, 0, 5]),
        hours=st.sampled_from([0, 0, 3]),
        user=st.sampled_from(USERS),
    )
    def one_comes(
        self, members: int, spare: int, cpu: str, where: str, priority: int, hours: int, user: str
    ) -> None:
        self.count += 1
        more: dict[str, Any] = {"priority": priority, "created": timestamp(1000.0 - 3600.0 * hours)}
        more["notes"] = {keys.SUBMITTER: user}
        self.world.add(gang(f"w{WAITING + self.count}", members + spare, members, where, cpu=cpu, **more))

    @rule(
        which=st.integers(0, 200), needed=st.integers(1, 2), where=st.sampled_from(QUEUES), held=st.booleans()
    )
    def one_changes(self, which: int, needed: int, where: str, held: bool) -> None:
        notes = {keys.HOLD: "true"} if held else {}
        created = timestamp(1000)
        self.world.add(group(self.name(which), needed, queue=where, created=created, annotations=notes))

    @rule(which=st.integers(0, 200))
    def one_has_another_member(self, which: int) -> None:
        self.count += 1
        name = self.name(which)
        self.world.add(pod(f"{name}-x{self.count}", name, cpu="1"))

    @rule(which=st.integers(0, 200), wholly=st.booleans())
    def one_goes(self, which: int, wholly: bool) -> None:
        name = self.name(which)
        members = sorted(each for each in self.world.pods if each.startswith(f"{name}-"))
        self.world.delete(*(members if wholly else members[:1]))
        if wholly:
            self.world.ledger.intake.drop_group(key(name))

    @rule(which=st.sampled_from(RUNNING))
    def one_that_runs_ends(self, which: str) -> None:
        if f"{which}-0" in self.world.pods:
            self.world.finish(f"{which}-0")

    @rule(
        which=st.sampled_from(RUNNING),
        ran=st.sampled_from([1.0, 60.0, 900.0]),
        saves=st.sampled_from(["", "7s", "90s", timestamp(1100.0)]),
    )
    def one_that_runs_has_work_to_lose(self, which: str, ran: float, saves: str) -> None:
        if (before := self.world.pods.get(f"{which}-0")) is not None and before.spec.node_name:
            status = replace(before.status, start_time=timestamp(self.world.now - ran))
            notes = {**(before.metadata.annotations or {}), keys.CHECKPOINT: saves}
            self.world.add(
                replace(before, status=status, metadata=replace(before.metadata, annotations=notes))
            )

    @rule(cpu=st.sampled_from(["0", "0.1", "2"]), goes=st.booleans())
    def others_come_and_go(self, cpu: str, goes: bool) -> None:
        if "s2" in self.world.pods and goes:
            self.world.delete("s2")
        elif not goes:
            self.world.add(foreign_pod("s2", on="n1", cpu=cpu))

    @rule()
    def plans_are_followed(self) -> None:
        self.world.settle()
        for each in list(self.world.decisions.groups.values()):
            if each.verdict is Verdict.STARTING and each.plan:
                self.world.start(each.key.partition("/")[2])
                return

    @rule(which=st.integers(0, 200))
    def scheduler_refuses(self, which: int) -> None:
        waiting = sorted(name for name, each in self.world.pods.items() if not each.spec.node_name)
        if waiting:
            self.world.refuse(waiting[which % len(waiting)])

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 20.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    def name(self, which: int) -> str:
        return f"w{which % (WAITING + self.count)}"


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(
    max_examples=examples(8), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


class Events(DecidedTwice):
    """Any events on a cluster that is nearly full."""

    @initialize()
    def begin(self) -> None:
        self.world = full_cluster()

    @rule(
        name=st.sampled_from(FOREIGN_PODS), on=st.sampled_from(NODES), cpu=st.sampled_from(["0.1", "1", "3"])
    )
    def stranger_comes(self, name: str, on: str, cpu: str) -> None:
        if name not in self.world.pods:
            self.world.add(foreign_pod(name, on=on, cpu=cpu))

    @rule(data=st.data())
    def stranger_goes(self, data: st.DataObject) -> None:
        there = sorted(name for name in self.world.pods if name.startswith(("s", "old")))
        there = [name for name in there if not name.startswith("same")]
        if there:
            self.world.delete(data.draw(st.sampled_from(there)))

    @rule(name=st.sampled_from(FOREIGN_PODS), on=st.sampled_from(NODES))
    def stranger_keeps_others_out(self, name: str, on: str) -> None:
        if name not in self.world.pods:
            self.world.add(foreign_pod(name, on=on, cpu="0.1", labels={"app": "x"}))

    @rule(
        name=st.sampled_from(GANGS),
        members=st.integers(1, 3),
        needed=st.integers(1, 3),
        cpu=st.sampled_from(["0.5", "1", "2", "5"]),
        where=st.sampled_from(["q", "r", ""]),
        kind=st.sampled_from(KINDS),
        priority=st.sampled_from([0, 0, 3, 5]),
        hours=st.integers(0, 5),
    )
    def gang_comes(
        self,
        name: str,
        members: int,
        needed: int,
        cpu: str,
        where: str,
        kind: dict[str, Any],
        priority: int,
        hours: int,
    ) -> None:
        if f"{name}-0" not in self.world.pods:
            more: dict[str, Any] = {"priority": priority, "created": timestamp(1000 - 3600.0 * hours)}
            self.world.add(gang(name, members, min(needed, members), queue=where, cpu=cpu, **kind, **more))

    @rule(data=st.data())
    def plans_are_followed(self, data: st.DataObject) -> None:
        planned = sorted(name for each in GANGS if self._is_decided(each) for name in self.world.plan(each))
        for name in planned[: data.draw(st.integers(0, 3))]:
            self.world.bind(name, self.world.plan(name.rsplit("-", 1)[0])[name])
            self.world.run(name)

    @rule(data=st.data())
    def members_end(self, data: st.DataObject) -> None:
        bound = sorted(
            name for name, each in self.world.pods.items() if name[0] == "g" and each.spec.node_name
        )
        if bound:
            self.world.finish(data.draw(st.sampled_from(bound)))

    @rule(
        name=st.sampled_from(NODES),
        cpu=st.sampled_from(["3", "4", "8"]),
        cordoned=st.booleans(),
        kind=st.sampled_from(["spot", "ondemand"]),
    )
    def node_changes(self, name: str, cpu: str, cordoned: bool, kind: str) -> None:
        self.world.add(node(name, cpu=cpu, cordoned=cordoned, labels=on_flavor(kind)))

    @rule(
        name=st.sampled_from(["q", "r"]),
        weight=st.integers(1, 3),
        cpu=st.sampled_from(["1", "4", "20"]),
        strategy=st.sampled_from(["traverse", "fifo", "priority", "rotation", "mixed"]),
        ageing=st.sampled_from([0, 0, 8]),
        stop=st.sampled_from(["", "", "", "Hold", "HoldAndDrain"]),
        flavors=st.sampled_from([(), (), FLAVORS, FLAVORS[:1], SHARED, SHARED[:1]]),
        limits=st.sampled_from(
            [None, None, QueueLimits(groups=1), QueueLimits(per_user=RunningLimit(pods=2))]
        ),
    )
    def queue_changes(
        self,
        name: str,
        weight: int,
        cpu: str,
        strategy: str,
        ageing: int,
        stop: str,
        flavors: tuple[QueueFlavor, ...],
        limits: QueueLimits | None,
    ) -> None:
        policies: dict[str, Any] = {"ageing": ageing, "stop_policy": stop, "limits": limits}
        policies["flavors"] = flavors
        self.world.add(queue(name, weight=weight, capability={"cpu": cpu}, strategy=strategy, **policies))

    @rule(kind=st.sampled_from(["spot", "ondemand"]), is_tainted=st.booleans(), is_there=st.booleans())
    def resource_flavor_changes(self, kind: str, is_tainted: bool, is_there: bool) -> None:
        self.world.add(shared("f", *[Taint("t", "NoSchedule")] * is_tainted, **on_flavor(kind)))
        if not is_there:
            self.world.ledger.intake.drop_flavor("f")

    @rule(name=st.sampled_from(GANGS), where=st.sampled_from(["q", "r"]), is_held=st.booleans())
    def group_is_held_or_resumed(self, name: str, where: str, is_held: bool) -> None:
        notes = {keys.HOLD: "true"} if is_held else {}
        self.world.add(group(name, 1, queue=where, created=timestamp(1000), annotations=notes))

    @rule(data=st.data())
    def scheduler_refuses(self, data: st.DataObject) -> None:
        waiting = sorted(
            name for name, each in self.world.pods.items() if name[0] == "g" and not each.spec.node_name
        )
        if waiting:
            name = data.draw(st.sampled_from(waiting))
            self.world.ungate(name).refuse(name)

    @rule(seconds=st.sampled_from([0.1, 5.0, 700.0, 3600.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    def _is_decided(self, gang: str) -> bool:
        return key(gang) in self.world.decisions.groups


TestEvents = Events.TestCase
TestEvents.settings = settings(
    max_examples=examples(10), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
