# ruff: noqa: E501
"""Sample clusters: a small, plausible one, and crowds of any size.

`python -m tests.dashboard.sample [GROUPS [CHANGES]]` serves one on loopback.
"""

import itertools
import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.api.setting_kinds import Address
from extender.api.summaries import (
    Amounts,
    CommandSummary,
    DecisionSummary,
    EstimateSummary,
    EventSummary,
    EvictionSummary,
    GroupDetails,
    GroupSummary,
    HolderSummary,
    LocalQueueSummary,
    MemberSummary,
    NodeSummary,
    Overview,
    QueueSummary,
    ReservationSummary,
    ShareSummary,
    ShortfallSummary,
    WaitSummary,
)
from extender.api.units import timestamp_at
from extender.dashboard.app import create_dashboard_app
from extender.dashboard.rendering import OpenPages
from extender.domain.explain.history import (
    AnyRecord,
    Evicted,
    GroupRun,
    Period,
    QueueHour,
    Report,
    Wait,
    report,
)
from extender.domain.model.reasons import Reason
from extender.telemetry.logs import set_up
from extender.web.side_ports import SideServer, pages
from extender.web.sockets import listen
from tests.dashboard.standins import SomeSource, SomeViewer

GPU = "nvidia.com/gpu"
GIB = 1024.0**3
HOSTILE_TEXT = "<script>alert(1)</script>\"'&{{7*7}}😈\u202e"
_HEALTH = {11: ("cordoned",), 17: ("not ready", "memory pressure")}
_FLAVORS = {"a100": 8, "h100": 8, "l4": 4, "cpu": 0}  # GPUs of a node


@dataclass
class SampleSource(SomeSource):
    """Source with an overview that tests change."""

    at: float = field(default_factory=time.time)

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        summary = next((group for group in self.seen.groups if group.key == f"{namespace}/{name}"), None)
        return details_of(summary, self.at) if summary else None

    def put(self, **changes: Any) -> None:
        """Replace the overview by a changed one with another version."""
        version = f"{self.seen.version}'"
        self.seen = replace(self.seen, **{"version": version, **changes})


def sample_source(now: float) -> SampleSource:
    """Return an overview of two departments that share 60 nodes, with running and waiting groups."""
    return SampleSource(
        Overview(
            version="1",
            at=timestamp_at(now),
            by="muster",
            queues=_queues(),
            local_queues=[
                LocalQueueSummary("research", "language", "language", 3, 2, {GPU: 56.0, "cpu": 320.0}),
                LocalQueueSummary("research", "vision", "vision", 2, 1, {GPU: 40.0}),
                LocalQueueSummary(
                    "students", "lab", "students", 1, 1, {GPU: 1.0}, "queue students is Closing"
                ),
            ],
            groups=sorted(_groups(now), key=lambda group: group.key),
            nodes=_nodes(60),
            topologies=[_LEVELS],
            reservations=[
                ReservationSummary("research/llama-70b", "research", ("h100-000", "h100-001"), {GPU: 16.0})
            ],
            decisions=[
                DecisionSummary(timestamp_at(now - 20), "research/llama-70b", "Waiting", "NoRoom", "")
            ],
        ),
        at=now,
    )


def _share(resource: str, flavor: str, allocated: float, deserved: float, **others: float) -> ShareSummary:
    return ShareSummary(
        resource,
        flavor,
        allocated,
        deserved,
        borrowed=max(allocated - deserved, 0.0),
        **{"lent": 0.0, **others},
    )


def _queues() -> Sequence[QueueSummary]:
    cpus, memory = 64 * 15.0, 512 * GIB * 15
    return (
        QueueSummary("root", state="Open", share=0.74, waiting=9, starting=1, running=16, shares=[
            _share(GPU, "", 222, 300), _share("cpu", "", 1480, 2400), _share("memory", "", 0.5 * memory, memory),
        ]),
        QueueSummary("research", "root", 1, "Open", weight=3, share=1.2, waiting=6, starting=1, running=7, shares=[
            _share(GPU, "h100", 96, 80, guarantee=40, ceiling=120), _share(GPU, "a100", 48, 60, lent=12),
            _share("cpu", "", 0.7 * cpus, cpus),
        ]),
        QueueSummary("vision", "research", 2, "Open", share=0.8, waiting=2, running=3, shares=[
            _share(GPU, "h100", 40, 48), _share(GPU, "a100", 16, 16),
        ]),
        QueueSummary("language", "research", 2, "Open", weight=2, share=1.5, waiting=4, starting=1, running=4, shares=[
            _share(GPU, "h100", 56, 32, ceiling=64), _share(GPU, "a100", 32, 44, lent=8),
        ]),
        QueueSummary("product", "root", 1, "Open", weight=2, share=0.6, waiting=2, running=7, shares=[
            _share(GPU, "l4", 30, 60, guarantee=20, ceiling=60), _share("cpu", "", 410, 800),
        ]),
        QueueSummary("nightly", "product", 2, "Open", stop_policy="Hold", share=0.0, waiting=2, shares=[
            _share(GPU, "l4", 0, 10),
        ]),
        QueueSummary("students", "root", 1, "Closing", share=0.4, waiting=1, running=2, shares=[
            _share(GPU, "l4", 8, 20, ceiling=24),
        ]),
    )  # fmt: skip


def _wait_summary(
    reason: Reason, detail: str, since: float, position: int = 0, line: int = 0, **others: Any
) -> WaitSummary:
    return WaitSummary(
        str(reason),
        f"{reason.meaning[0].upper()}{reason.meaning[1:]}.",
        detail,
        timestamp_at(since),
        position,
        line,
        **others,
    )


def _groups(now: float) -> Sequence[GroupSummary]:
    def summary(
        namespace: str, name: str, queue: str, verdict: str, needed: int, age: float, **others: Any
    ) -> GroupSummary:
        placed = needed if verdict in ("Running", "Ended") else 0
        defaults: dict[str, Any] = {
            "placed": placed,
            "members": needed,
            "user": f"{namespace}-bot",
        }
        return GroupSummary(
            namespace,
            name,
            queue=queue,
            verdict=verdict,
            needed=needed,
            created=timestamp_at(now - age),
            **(defaults | others),
        )

    holders = [
        HolderSummary("PodGroup", "research", "vit-pretrain", "vision", 5, {GPU: "40"}),
        HolderSummary("PodGroup", "research", "moe-8x7b", "language", 3, {GPU: "24"}, timestamp_at(now - 90)),
        HolderSummary("Pod", "kube-system", "dcgm-exporter-x7k2p", "", 1, {"cpu": "2"}),
    ]
    estimate = EstimateSummary(timestamp_at(now + 2100), timestamp_at(now + 5400), "Learnt")
    llama = _wait_summary(
        Reason.NO_ROOM,
        "nvidia.com/gpu: 64 needed, 40 left on suitable nodes; capacity for 5 of 8 members; position 1 in queue language",
        now - 2840, 1, 4, holders=holders, more_holders=2, estimate=estimate,
        remedy="It starts when research/vit-pretrain has ended, which declared to end in 35 minutes.",
    )  # fmt: skip
    unknown = EstimateSummary(
        unknown_because="job/scan of queue product has no known end; declare its kube-muster.io/run-time"
    )
    rows = [
        summary("research", "llama-70b", "language", "Waiting", 8, 3000, wait=llama, priority=1000, asks={GPU: 64.0, "cpu": 256.0}, user="ada@example.org"),
        summary("research", "llama-7b-sft", "language", "Waiting", 2, 1900, wait=_wait_summary(Reason.BEHIND_OTHERS, "llama-70b comes first; position 2 in queue language", now - 1800, 2, 4, ahead=["research/llama-70b"], estimate=replace(estimate, p50=timestamp_at(now + 3000)))),
        summary("research", "tokenizer-sweep", "language", "Waiting", 4, 900, wait=_wait_summary(Reason.QUEUE_CEILING, "nvidia.com/gpu: 32 asked, 8 left below the ceiling of 64", now - 880, 3, 4, estimate=unknown)),
        summary("research", "rlhf-eval", "language", "Starting", 4, 400, placed=3),
        summary("research", "vit-pretrain", "vision", "Running", 5, 9000, holds={GPU: 40.0}, started=timestamp_at(now - 8900)),
        summary("research", "moe-8x7b", "language", "Running", 3, 72000, holds={GPU: 24.0}, failed=1, started=timestamp_at(now - 70000), evicted=EvictionSummary(timestamp_at(now - 71000), "Reclaim", "queue vision is below its deserved share")),
        summary("research", "segment-all", "vision", "Waiting", 2, 640, wait=_wait_summary(Reason.FRAGMENTED, "16 nvidia.com/gpu are free, at most 4 on one node", now - 600, 1, 2, estimate=estimate)),
        summary("research", "depth-ft", "vision", "Waiting", 1, 60, wait=_wait_summary(Reason.HELD, "", now - 58), held=True),
        summary("research", "clip-eval", "vision", "Ended", 1, 90000, succeeded=1, started=timestamp_at(now - 88000)),
        summary("product", "ranker-train", "product", "Running", 6, 5400, holds={GPU: 24.0}, started=timestamp_at(now - 5300)),
        summary("product", "embed-refresh", "product", "Running", 2, 1200, holds={GPU: 6.0}, started=timestamp_at(now - 1100)),
        summary("product", "podgroup-9f37b5ef-f040-4403-a9c5-8a04c6a06883", "nightly", "Waiting", 4, 30000, called="job/backfill-q3", is_job=True, wait=_wait_summary(Reason.QUEUE_STOPPED, "queue nightly is on hold", now - 29000, 1, 2, estimate=unknown)),
        summary("product", "report", "nightly", "Waiting", 1, 28000, wait=_wait_summary(Reason.QUEUE_STOPPED, "queue nightly is on hold", now - 27900, 2, 2, estimate=unknown)),
        summary("students", "mnist-lab-3", "students", "Running", 1, 700, holds={GPU: 1.0}, user="kim", started=timestamp_at(now - 650)),
        summary("students", "diffusion-proj", "students", "Waiting", 2, 350, wait=_wait_summary(Reason.NOT_ENOUGH_MEMBERS, "1 of 2 pods exist", now - 340), members=1, user="lee"),
    ]  # fmt: skip
    return rows


_LEVELS = ("topology.kubernetes.io/block", "topology.kubernetes.io/rack")


def _nodes(count: int) -> Sequence[NodeSummary]:
    nodes = []
    flavors = list(_FLAVORS)
    for number in range(count):
        flavor = flavors[min(number * 4 // count, 3)]
        gpus = _FLAVORS[flavor]
        used = min(gpus, (number * 7) % (gpus + 3)) if gpus else 0
        group = (
            "research/vit-pretrain",
            "research/moe-8x7b",
            "product/ranker-train",
            "students/mnist-lab-3",
        )[number % 4]
        allocatable: dict[str, float] = {"cpu": 64.0, "memory": 512 * GIB} | (
            {GPU: float(gpus)} if gpus else {}
        )
        usage: dict[str, float] = {"cpu": 2.0 + used * 6, "memory": (8 + used * 48) * GIB} | (
            {GPU: float(used)} if used else {}
        )
        claimed: Amounts = {GPU: float(gpus - used)} if gpus and number % 11 == 3 and used < gpus else {}
        groups = ((group,) if used else ()) + (("research/rlhf-eval",) if claimed else ())
        nodes.append(
            NodeSummary(
                f"{flavor}-{number % max(count // 4, 1):03}", allocatable, usage, claimed, groups=groups, flavors=(flavor,),
                reserved_for="research/llama-70b" if flavor == "h100" and used < 3 and not claimed else "",
                domains=dict(zip(_LEVELS, (f"b{number * 4 // count}", f"r{number // 5}"), strict=True)),
                taken=number % 23 != 11, health=_HEALTH.get(number % 23, ()),
            )
        )  # fmt: skip
    return sorted(nodes, key=lambda node: node.name)


def details_of(group: GroupSummary, now: float) -> GroupDetails:
    wait, created = group.wait, group.created
    timeline = [
        EventSummary(created, "Created", f"{group.user} created it in queue {group.queue}."),
        EventSummary(
            timestamp_at(now - 2840), "NoRoom", "It began to wait: 64 nvidia.com/gpu needed, 16 left."
        ),
        EventSummary(
            timestamp_at(now - 1500), "Undone", "A start was undone: node h100-004 became unready.", True, 2
        ),
        EventSummary(
            timestamp_at(now - 300),
            "NoRoom",
            "24 more nvidia.com/gpu became free; capacity for 5 of 8 members.",
        ),
    ]
    phase = "Running" if group.verdict == "Running" else "Pending"
    return GroupDetails(
        group,
        [
            MemberSummary(f"{group.name}-{at}", phase, f"h100-{at:03}" if at < group.placed else "", "Bound" if at < group.placed else "")
            for at in range(min(group.members, 2000))
        ],
        [ShortfallSummary(GPU, 64, 40), ShortfallSummary("cpu", 256, 610), ShortfallSummary("memory", 4096 * GIB, 5100 * GIB)] if wait else [],
        timeline if wait else timeline[:1],
        [
            CommandSummary("start it with the members that fit", f"kubectl -n {group.namespace} patch podgroup {group.name} --type merge -p '{{\"spec\":{{\"minMember\":5}}}}'"),
            CommandSummary("raise the queue's ceiling", f"muster queue update {group.queue} --capability nvidia.com/gpu=72", allowed=False),
        ] if wait else [],
    )  # fmt: skip


def with_history(source: SampleSource, now: float) -> SampleSource:
    """Return the small cluster with an hour of history, in which the shares of queues vary."""
    for minute in range(60):
        factors = (0.75 + 0.25 * math.sin(minute / (5 + number)) for number in itertools.count())
        shares = {
            queue.name: (queue.share or 0.0) * factor
            for queue, factor in zip(source.seen.queues, factors, strict=False)
        }
        source.shares.record(shares, now - 3600 + 60 * minute)
        usage = 0.6 + 0.2 * math.sin(minute / 9)
        source.usages.record({GPU: usage, "cpu": usage / 2, "memory": usage / 3}, now - 3600 + 60 * minute)
    return source


def past(period: Period) -> Report:
    """Return a report on the small cluster, summed from records as Muster does."""
    start = period.since + 3600

    def run(queue: str, namespace: str, name: str, hours: float, gpus: int, **others: Any) -> list[AnyRecord]:
        common: dict[str, Any] = {
            "queue": queue,
            "namespace": namespace,
            "user": f"{namespace}-bot",
            "group": f"{namespace}/{name}",
        }
        waited = others.get("waited", 600.0)
        end = min(start + hours * 3600, period.until)
        spent = {GPU: gpus * (end - start), "cpu": 8000 * gpus * (end - start)}
        return [
            GroupRun(**common, start=start, end=end, until=end, spent=spent),
            Wait(
                **common,
                start=start - waited,
                end=start,
                until=start,
                waited={"NoRoom": waited},
                has_started=True,
            ),
        ]

    records: list[AnyRecord] = [
        *run("language", "research", "moe-8x7b", 20, 24, waited=5400.0),
        *run("vision", "research", "vit-pretrain", 9, 40, waited=1260.0),
        *run("product", "product", "ranker-train", 14, 24, waited=240.0),
        *run("students", "students", "mnist-lab-3", 3, 1, waited=90.0),
        Evicted(queue="language", namespace="research", user="research-bot", start=start + 60, uid="1", pod="research/moe-8x7b-0", group="research/moe-8x7b", cause="Reclaimed", lost={GPU: 8 * 5400.0}),
        *(QueueHour(queue=queue, start=start, deserved={GPU: 3600.0 * 300}, wanting=3600.0, share=3600.0 * share) for queue, share in (("language", 1.1), ("vision", 0.8), ("product", 0.95))),
    ]  # fmt: skip
    return report(records, period)


def crowd(now: float, queues: int, groups: int, nodes: int) -> SampleSource:
    """Return an overview with thousands of different objects."""
    base = sample_source(now)
    samples = list(base.seen.groups)
    positions = {f"queue-{number}": 0 for number in range(queues)}

    def group(number: int) -> GroupSummary:
        sample, queue = samples[number % len(samples)], f"queue-{number % queues}"
        wait = sample.wait
        if wait:
            positions[queue] += 1
            wait = replace(wait, position=positions[queue])
        return replace(
            sample,
            namespace=f"team-{number % 97}",
            name=f"job-{number:05}",
            called="",
            queue=queue,
            wait=wait,
        )

    base.put(
        groups=sorted((group(number) for number in range(groups)), key=lambda group_: group_.key),
        nodes=_nodes(nodes),
        topologies=[_LEVELS],
        queues=[
            QueueSummary("root", state="Open"),
            *(
                replace(_queues()[1], name=f"queue-{number}", parent="root" if number % 10 == 0 else f"queue-{number - number % 10}", depth=1 + (number % 10 > 0))
                for number in range(queues)
            ),
        ],
    )  # fmt: skip
    return base


def fresh(now: float) -> SampleSource:
    """Return an overview of a cluster without groups."""
    base = sample_source(now)
    nodes = [replace(node, used={}, claimed={}, groups=(), reserved_for="") for node in base.seen.nodes]
    share = ShareSummary(GPU, deserved=300.0)
    base.put(groups=(), nodes=nodes, reservations=(), decisions=(), local_queues=(),
             queues=[QueueSummary("root", state="Open", share=0.0, shares=[share])])  # fmt: skip
    return base


def long_names(now: float) -> SampleSource:
    """Return ten groups with long names, users, resources and nodes, as clouds and operators use them."""
    base = sample_source(now)
    slice_, long_name = "nvidia.com/mig-3g.40gb", "llama-3-70b-instruct-finetune-2026-11-29-run"

    def group(number: int, sample: GroupSummary) -> GroupSummary:
        name = f"pytorchjob/{long_name}-{number:02}"
        user = "system:serviceaccount:research-platform:pipeline-runner"
        return replace(
            sample,
            name=f"podgroup-{number}",
            called=name,
            is_job=True,
            user=user,
            asks={slice_: 12.0, GPU: 4.0},
        )

    nodes = [
        replace(
            node,
            name=f"gke-prod-eu-west4-{node.name}-7f3c2b1a-x9kz.c.project.internal",
            allocatable={**node.allocatable, slice_: 4.0, "ephemeral-storage": 4096 * GIB, "rdma/hca": 8.0},
            used={**node.used, slice_: 3.0},
        )
        for node in base.seen.nodes[:12]
    ]
    base.put(
        groups=[group(number, sample) for number, sample in enumerate(base.seen.groups[:10])], nodes=nodes
    )
    return base


def spoilt(overview: Overview, evil: str = HOSTILE_TEXT) -> Overview:
    """Return an overview with `evil` appended to every text that users may write."""
    return msgspec.convert(_spoil(msgspec.to_builtins(overview), evil), Overview)


_TEXTS_OF_MUSTER = {
    "version",
    "at",
    "verdict",
    "apiVersion",
    "by",
    "created",
    "started",
    "since",
    "p50",
    "p90",
    "overdue",
    "silentSince",
}


def _spoil(value: Any, evil: str) -> Any:
    if isinstance(value, str):
        return value + evil if value else value
    if isinstance(value, Mapping):
        return {
            (key + evil if key == GPU else key): item if key in _TEXTS_OF_MUSTER else _spoil(item, evil)
            for key, item in value.items()
        }
    return [_spoil(item, evil) for item in value] if isinstance(value, list | tuple) else value


def main() -> None:
    """Serve a sample cluster.

    GROUPS: number of groups, on 5,000 nodes in 1,000 queues; 0: the small one. CHANGES: number a second.
    """
    set_up("text", "error")
    groups, changes = [*map(int, sys.argv[1:]), 0, 0][:2]
    now = time.time()
    source = crowd(now, queues=1000, groups=groups, nodes=5000) if groups else sample_source(now)
    viewer = SomeViewer()
    pages_open = OpenPages(source)
    app = create_dashboard_app(source, lambda _: viewer, history=past, open_pages=pages_open)
    listener = listen("--listen", Address("127.0.0.1", 0))
    server = SideServer("dashboard", listener, pages(app), immediate_answer=pages_open.news_for)
    sys.stdout.write(f"http://{server.address}\n")
    sys.stdout.flush()
    if changes:
        for number in itertools.count():
            time.sleep(1 / changes)
            rows = list(source.seen.groups)
            index = number % len(rows)
            rows[index] = replace(rows[index], failed=rows[index].failed + 1)
            source.put(version=str(number), groups=rows)
    threading.Event().wait()


if __name__ == "__main__":
    main()
