"""Read model on a real control plane: Muster's view equals the API's objects.

A submitter is shown only readable objects.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from extender.api.summaries import GroupSummary, NodeSummary, Overview, QueueSummary
from extender.cli.access import Flags, open_access
from extender.cli.overview import ObservedSource
from tests.e2e.harness.access import ADMIN, SUBMITTER, User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

MILD = {"withinQueue": "Never", "unmanaged": "Never"}


@contextmanager
def seen_by(user: User, stage: Stage) -> Iterator[ObservedSource]:
    kubeconfig = str(stage.cluster.kubeconfig(user))
    with open_access(Flags(kubeconfig, None, stage.namespace)) as place:
        source = ObservedSource(place)
        try:
            yield source
        finally:
            source.stop()


def of_group(group: GroupSummary) -> object:
    wait = group.wait and (group.wait.reason, group.wait.sentence, group.wait.position, group.wait.line)
    return (
        group.key,
        group.called,
        group.queue,
        group.verdict,
        group.needed,
        group.members,
        group.placed,
        group.asks,
        group.holds,
        wait,
    )


def of_queue(queue: QueueSummary) -> object:
    shares = [
        (share.resource, share.allocated, share.deserved, share.guarantee, share.borrowed)
        for share in queue.shares
        if share.allocated
    ]
    return (
        queue.name,
        queue.depth,
        queue.state,
        queue.weight,
        queue.share,
        queue.waiting,
        queue.starting,
        queue.running,
        shares,
    )


def of_node(node: NodeSummary) -> object:
    return node.name, node.allocatable, node.used, node.claimed, node.groups, node.flavors, node.taken


@pytest.mark.usefixtures("scheduler")
def test_a_running_muster_and_the_objects_say_the_same(stage: Stage, muster: Muster) -> None:
    stage.nodes(2, cpu="4")
    stage.queue("q", preemption=MILD)
    stage.queue("below", parent="q", preemption=MILD)
    stage.wait_phase(stage.gang("runs", 2, cpu="3", queue="q", gated=True))
    stage.gang("waits", 2, cpu="2", queue="q", gated=True)
    stage.gang("behind", 2, cpu="2", queue="q", gated=True)
    stage.wait_reason("waits", "NoRoom")

    def of(overview: Overview) -> object:
        groups = [of_group(group) for group in overview.groups if group.namespace == stage.namespace]
        queues = [of_queue(queue) for queue in overview.queues if queue.name in ("q", "below")]
        return groups, queues, [of_node(node) for node in overview.nodes]

    with seen_by(ADMIN, stage) as source:

        def agree() -> bool:
            decided = msgspec.convert(muster.debug("/debug/overview"), Overview)
            return of(decided) == of(source.overview())

        wait_for(agree)
        assert len(source.overview().groups) >= 3


@pytest.mark.usefixtures("scheduler", "muster")
def test_a_submitter_is_shown_their_namespace(stage: Stage) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q", preemption=MILD)
    stage.wait_phase(stage.gang("runs", 1, cpu="3", queue="q", gated=True))
    stage.grant_edit(SUBMITTER.name)
    with seen_by(SUBMITTER, stage) as source:
        found = source.overview()
        assert [group.key for group in found.groups] == [f"{stage.namespace}/runs"]
        assert found.nodes == []
        assert any(f"namespace {stage.namespace} " in note for note in found.notes)
