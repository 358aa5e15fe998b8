"""Clusters with all kinds of settings at once.

Roles, flavors, affinity, reservations, reclaim, limits and strategies: decisions reach a fixed point within
two cycles of any event (`World.settle`).
"""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from extender.api.objects.queues import QueueLimits, RunningLimit
from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import (
    AT_ONCE,
    HOSTNAME,
    ZONE,
    anti_affinity,
    flavor,
    foreign_pod,
    group,
    node,
    on_flavor,
    pod,
    preemption,
    queue,
)
from tests.domain.decided_twice import DecidedTwice
from tests.domain.world import World, timestamp
from tests.property_examples import examples

FLAVORS = ("a", "b")
PREEMPTION = (
    AT_ONCE,
    None,
    preemption(after="5s"),
    preemption(unmanaged="LowerPriority"),
    preemption(at_most="20m", after="1m", patience="0.2"),
)
LIMITS = (None, QueueLimits(groups=1), QueueLimits(per_user=RunningLimit(pods=2)))
few_cpus = st.sampled_from([None, None, *({"cpu": str(n)} for n in (1, 2, 4, 6))])


@st.composite
def kinds(draw: st.DrawFn) -> dict[str, Any]:
    """Draw fields of a member that count for its place."""
    key, app = draw(st.sampled_from(["", "", HOSTNAME, ZONE])), draw(st.sampled_from(FLAVORS))
    kind: dict[str, Any] = {"cpu": draw(st.sampled_from(["0.5", "1", "2"])), "labels": {"app": app}}
    return kind | ({"affinity": anti_affinity(key, app=draw(st.sampled_from(FLAVORS)))} if key else {})


@st.composite
def queue_fields(draw: st.DrawFn, has_flavors: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "weight": draw(st.integers(1, 3)),
        "strategy": draw(st.sampled_from(["", "fifo", "priority", "rotation", "mixed", "fair"])),
        "priority": draw(st.sampled_from([0, 0, 1])),
        "capability": draw(few_cpus),
        "deserved": draw(few_cpus),
        "reserve_after": draw(st.sampled_from(["1s", "10m"])),
        "preemption": draw(st.sampled_from(PREEMPTION)),
        "limits": draw(st.sampled_from(LIMITS)),
        "reclaimable": draw(st.sampled_from([True, True, False])),
    }
    if has_flavors and draw(st.booleans()):
        fields["flavors"] = [flavor(name, draw(few_cpus), draw(few_cpus)) for name in FLAVORS]
    return fields


class Everything(DecidedTwice):
    @initialize(data=st.data(), has_flavors=st.booleans())
    def begin(self, data: st.DataObject, has_flavors: bool) -> None:
        self.world, self.count = World(), 0
        zones, sizes = st.sampled_from(["", "x", "x", "y"]), st.sampled_from(["1", "2", "3", "4"])
        for n in range(data.draw(st.integers(2, 4))):
            labels = on_flavor(data.draw(st.sampled_from(FLAVORS))) if has_flavors else None
            self.world.add(node(f"n{n}", cpu=data.draw(sizes), zone=data.draw(zones), labels=labels))
        self.queues = [f"q{n}" for n in range(data.draw(st.integers(1, 3)))]
        for name in self.queues:
            parent = data.draw(st.sampled_from(["", "", "q0"])) if name != "q0" else ""
            self.world.add(queue(name, parent=parent, **data.draw(queue_fields(has_flavors))))

    @rule(
        driver=kinds(),
        worker=kinds(),
        workers=st.integers(1, 3),
        has_driver=st.booleans(),
        spare=st.sampled_from([0, 0, 1]),
        age=st.sampled_from([0.0, 5.0, 100.0, 4000.0]),
        priority=st.sampled_from([0, 0, 5]),
        run_time=st.sampled_from(["", "60s", "600s"]),
        asked=few_cpus,
        which=st.integers(0, 2),
    )
    def gang_comes(
        self,
        driver: dict[str, Any],
        worker: dict[str, Any],
        workers: int,
        has_driver: bool,
        spare: int,
        age: float,
        priority: int,
        run_time: str,
        asked: dict[str, str] | None,
        which: int,
    ) -> None:
        name, where = f"g{self.count}", self.queues[which % len(self.queues)]
        self.count += 1
        then: dict[str, Any] = {"created": timestamp(self.world.now - age)}
        roles = {"d": 1, "w": workers} if has_driver else None
        needs: dict[str, Any] = {"roles": roles, "run_time": run_time, "min_resources": asked}
        self.world.add(group(name, workers + has_driver, where, **needs, **then))
        members = {f"{name}-d0": driver} if has_driver else {}
        members |= {f"{name}-w{n}": worker for n in range(workers + spare)}
        for member, kind in members.items():
            self.world.add(pod(member, name, role=member[-2], priority=priority, **then, **kind))

    @rule(
        kind=kinds(), role=st.sampled_from("dw"), gate=st.sampled_from(["", "", "g"]), which=st.integers(0, 9)
    )
    def a_later_member_comes(self, kind: dict[str, Any], role: str, gate: str, which: int) -> None:
        if self.count:
            self.world.add(
                pod(
                    f"l{len(self.world.pods)}", f"g{which % self.count}", role=role, foreign_gate=gate, **kind
                )
            )

    @rule(kind=kinds(), which=st.integers(0, 3))
    def stranger_comes(self, kind: dict[str, Any], which: int) -> None:
        self.count += 1
        on = sorted(self.world.nodes)[which % len(self.world.nodes)]
        self.world.add(foreign_pod(f"s{self.count}", on=on, **kind))

    @rule(which=st.integers(0, 50), part=st.sampled_from([1, 9, 9]))
    def a_plan_is_followed(self, which: int, part: int) -> None:
        starting = [
            group for group in self.world.decisions.groups.values() if group.verdict is Verdict.STARTING
        ]
        names = {each.metadata.uid: name for name, each in self.world.pods.items()}
        plans = [{names[uid]: at for uid, at in each.plan.items() if uid in names} for each in starting]
        if plans:
            for name, where in list(plans[which % len(plans)].items())[:part]:
                self.world.ungate(name).bind(name, where)
                self.world.run(name)

    @rule(which=st.integers(0, 50), phase=st.sampled_from(["Succeeded", "Failed", ""]))
    def a_pod_ends_or_goes(self, which: int, phase: str) -> None:
        bound = sorted(name for name, each in self.world.pods.items() if each.spec.node_name)
        if bound:
            name = bound[which % len(bound)]
            _ = self.world.finish(name, phase=phase) if phase else self.world.delete(name)

    @rule()
    def victims_go(self) -> None:
        uids = self.world.decisions.evictions
        self.world.delete(*[name for name, each in self.world.pods.items() if each.metadata.uid in uids])

    @rule(which=st.integers(0, 50))
    def the_scheduler_refuses(self, which: int) -> None:
        waiting = sorted(name for name, each in self.world.pods.items() if not each.spec.node_name)
        if waiting:
            self.world.refuse(waiting[which % len(waiting)])

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 60.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)


TestEverything = Everything.TestCase
TestEverything.settings = settings(
    max_examples=examples(12), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_reservation_changes_nothing_of_whether_a_gang_ever_fits() -> None:
    """Start the gang although its workers fit on flavor a alone.

    With its reservation, the driver found no free capacity there any more and took flavor b, on which the
    workers never fit: the reservation ended, and was made again.
    """
    world = World(
        node("n0", cpu="4", zone="x", labels=on_flavor("a")),
        node("n1", cpu="3", labels=on_flavor("b")),
        queue("q", flavors=[flavor("a"), flavor("b")], reserve_after="1s", preemption=None),
        foreign_pod("s", on="n1", labels={"app": "a"}),
        group("g0", 2, "q", roles={"d": 1, "w": 1}),
        pod("g0-d", "g0", role="d", cpu="2", labels={"app": "a"}),
        pod("g0-w", "g0", role="w", labels={"app": "b"}),
    ).start("g0")
    then: dict[str, Any] = {"created": timestamp(world.now - 5.0)}
    world.add(group("g1", 3, "q", roles={"d": 1, "w": 2}, **then), pod("g1-d", "g1", role="d", **then))
    world.add([pod(f"g1-w{n}", "g1", role="w", cpu="2", labels={"app": "a"}, **then) for n in range(2)])
    alone: dict[str, Any] = {
        "cpu": "2",
        "affinity": anti_affinity(app="a"),
        "created": timestamp(world.now - 4.0),
    }
    world.add(group("g2", 2, "q", roles={"d": 1, "w": 1}, created=alone["created"]))
    world.add(pod("g2-d", "g2", role="d", **alone), pod("g2-w", "g2", role="w", created=alone["created"]))
    assert world.settle().decision("g1").reservation is not None
    assert world.reason("g1") is Reason.NO_ROOM
