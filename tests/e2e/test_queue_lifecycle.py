"""Queues from their first status to their end, on a real API server. No scheduler is needed for that."""

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import ALL_REQUESTS, answer
from tests.e2e.harness.follower import Follower
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import COMMANDS, CRDS, EVENTS, POD_GROUPS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

MARK = "volcano.sh/closed-by-parent"
NOTE = "kube-muster.io/queue-uid"
COMMAND_CRD = "commands.bus.volcano.sh"
NUMBERS = itertools.count()
PACE = 1.0
Json = dict[str, Any]


def state(stage: Stage, queue: str) -> str:
    return str((stage.api.find(QUEUES, queue) or {}).get("status", {}).get("state", ""))


def wait_state(stage: Stage, wanted: str, *queues: str) -> None:
    for queue in queues:
        wait_for(lambda: state(stage, queue) == wanted, what=f"queue {queue} {wanted}")  # noqa: B023


def wish(stage: Stage, queue: str, wanted: str) -> None:
    stage.api.patch(QUEUES, queue, {"spec": {"state": wanted}})


def condition(stage: Stage, queue: str, kind: str = "Open") -> Json:
    conditions = stage.api.get(QUEUES, queue)["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


def wait_condition(stage: Stage, queue: str, kind: str = "Open", **wanted: str) -> None:
    """Wait for a condition; the state is written first, and the conditions after it."""
    wait_for(
        lambda: wanted.items() <= condition(stage, queue, kind).items(),
        what=f"condition {kind} of {queue} {wanted}",
    )


def is_flagged(stage: Stage, queue: str) -> bool:
    return bool(stage.api.get(QUEUES, queue)["metadata"].get("annotations", {}).get(MARK) == "true")


def command(stage: Stage, action: str, queue: Json, *, owned: bool = True) -> str:
    """Create a command as vcctl does: owned by the queue that it is for.

    The garbage collector, if it runs, removes objects of a missing owner.
    """
    target = {"apiVersion": queue["apiVersion"], "kind": "Queue", "name": queue["metadata"]["name"]}
    target |= {"uid": queue["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    name = f"{queue['metadata']['name']}-{action.lower()}-{next(NUMBERS)}"
    made = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": action, "target": target}
    metadata = {"name": name, "namespace": stage.namespace, "ownerReferences": [target] if owned else []}
    stage.api.create(COMMANDS, {**made, "metadata": metadata})
    return name


def wait_followed(stage: Stage, *names: str) -> None:
    def left() -> set[str]:
        return {each["metadata"]["name"] for each in stage.api.items(COMMANDS, stage.namespace)} & {*names}

    wait_for(lambda: not left(), what=f"commands {names} followed")


def test_root_and_default_are_there_and_come_back(stage: Stage, muster: Muster) -> None:
    wait_state(stage, "Open", "root", "default")
    root, default = (stage.api.get(QUEUES, name) for name in ("root", "default"))
    assert (root["spec"]["weight"], root["spec"]["reclaimable"]) == (1, False)
    assert (default["spec"]["reclaimable"], default["spec"]["parent"]) == (True, "root")
    stage.api.delete(QUEUES, "default")
    wait_state(stage, "Open", "default")
    assert stage.api.get(QUEUES, "default")["metadata"]["uid"] != default["metadata"]["uid"]


def test_a_queue_closes_when_its_last_group_goes_and_opens_again(stage: Stage, muster: Muster) -> None:
    stage.queue("q")
    wait_state(stage, "Open", "q")
    wait_condition(stage, "q", "Valid", status="True")
    for name in ("a", "b"):
        stage.group(name, 1, queue="q")
    wait_for(lambda: stage.api.get(QUEUES, "q")["status"]["inqueue"] == 2, what="two groups counted")
    wish(stage, "q", "Closed")
    wait_state(stage, "Closing", "q")
    wait_condition(stage, "q", reason="Closed")
    stage.api.delete(POD_GROUPS, "a", stage.namespace)
    wait_for(lambda: stage.api.get(QUEUES, "q")["status"]["inqueue"] == 1, what="one group counted")
    assert state(stage, "q") == "Closing"
    stage.api.delete(POD_GROUPS, "b", stage.namespace)
    wait_state(stage, "Closed", "q")
    wish(stage, "q", "Open")
    wait_state(stage, "Open", "q")
    reasons = ["QueueClosing", "QueueClosed", "QueueOpened"]
    wait_for(lambda: {*reasons} <= _messages(stage, "q"), what=f"events {reasons}")


def _messages(stage: Stage, queue: str) -> set[str]:
    """Return the reasons of the events on the queue that has this name now."""
    uid = stage.api.get(QUEUES, queue)["metadata"]["uid"]
    events = stage.api.items(EVENTS, "default")
    return {event["reason"] for event in events if event["involvedObject"].get("uid") == uid}


def test_a_queue_without_spec_state_keeps_the_state_of_its_status(stage: Stage, muster: Muster) -> None:
    """Tools that close a queue in its status alone, as Volcano's do, are obeyed; no user writes a spec."""
    stage.queue("q")
    wait_state(stage, "Open", "q")
    stage.api.patch(QUEUES, "q", {"status": {"state": "Closed"}}, sub="status")
    wait_condition(stage, "q", status="False")
    stage.group("a", 1, queue="q")
    wait_state(stage, "Closing", "q")
    muster.restart(hard=True)
    stage.api.delete(POD_GROUPS, "a", stage.namespace)
    wait_state(stage, "Closed", "q")
    assert "state" not in stage.api.get(QUEUES, "q")["spec"]


def test_commands_open_and_close(stage: Stage, muster: Muster) -> None:
    queue = stage.queue("q")
    wait_followed(stage, command(stage, "CloseQueue", queue))
    assert stage.api.get(QUEUES, "q")["spec"]["state"] == "Closed"
    wait_state(stage, "Closed", "q")
    wait_followed(stage, command(stage, "OpenQueue", queue))
    wait_state(stage, "Open", "q")
    obeyed = partial(muster.metric, "muster_queue_commands_total", outcome="obeyed")
    wait_for(lambda: obeyed() == 2, what="two commands counted")


def test_commands_that_make_no_sense_are_removed_and_change_nothing(stage: Stage, muster: Muster) -> None:
    queue = stage.queue("q")
    wait_state(stage, "Open", "q", "root")
    other = {**queue, "metadata": {**queue["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    bad = [command(stage, "DrainQueue", queue), command(stage, "CloseQueue", other, owned=False)]
    bad.append(command(stage, "CloseQueue", stage.api.get(QUEUES, "root")))
    wait_followed(stage, *bad)
    refused = partial(muster.metric, "muster_queue_commands_total", outcome="refused")
    wait_for(lambda: refused() == 3, what="three refused commands counted")
    assert {state(stage, "q"), state(stage, "root")} == {"Open"}


def test_commands_outlive_muster(
    stage: Stage, muster_behind_proxy: Muster, proxy: FaultProxy, muster_user: User
) -> None:
    """It dies after the first took effect, before that is removed; meanwhile somebody changes their mind."""
    done, undone = stage.queue("done"), stage.queue("undone")
    wait_state(stage, "Open", "done", "undone")
    proxy.inject(answer(500, "DELETE", "/commands/", times=ALL_REQUESTS))
    first = command(stage, "CloseQueue", done)
    wait_state(stage, "Closed", "done")
    muster_behind_proxy.kill()
    assert stage.api.find(COMMANDS, first, stage.namespace)
    wish(stage, "done", "Open")
    second = command(stage, "CloseQueue", undone)
    stage.start_muster(user=muster_user)
    wait_followed(stage, first, second)
    wait_state(stage, "Closed", "undone")
    wait_state(stage, "Open", "done")
    assert stage.api.get(QUEUES, "done")["spec"]["state"] == "Open"


@pytest.mark.gaps_allowed  # the API server ends all watches of a kind that goes
def test_without_the_kind_of_commands_all_else_works(stage: Stage, muster_user: User) -> None:
    with _without_commands(stage):
        muster = stage.start_muster(user=muster_user)
        stage.queue("q")
        wait_state(stage, "Open", "q", "root", "default")
        wait_for(lambda: not _commands(muster)["known"], what="reported on the debug page")
        assert muster.ready()
    wait_for(lambda: _commands(muster)["synced"], what="the kind is found when it comes")
    wait_followed(stage, command(stage, "CloseQueue", stage.api.get(QUEUES, "q")))


def _commands(muster: Muster) -> Json:
    watched: Json = muster.debug("/debug/watches")["/apis/bus.volcano.sh/v1alpha1/commands"]
    return watched


@contextmanager
def _without_commands(stage: Stage) -> Iterator[None]:
    crd = stage.api.get(CRDS, COMMAND_CRD)
    stage.api.delete(CRDS, COMMAND_CRD)
    try:
        wait_for(lambda: stage.api.find(CRDS, COMMAND_CRD) is None, what="the kind gone")
        yield
    finally:
        reserved = {key: crd["metadata"][key] for key in ("name", "labels")}
        stage.api.create(CRDS, {**crd, "metadata": reserved, "status": None})
        metadata = {"name": "probe", "namespace": stage.namespace}
        probe = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": metadata}
        wait_for(lambda: stage.admits(COMMANDS, probe), what="the kind is back")


def test_closing_passes_to_children_and_opening_to_those_that_it_closed(stage: Stage, muster: Muster) -> None:
    stage.queue("team")
    stage.queue("child", parent="team")
    stage.queue("grandchild", parent="child")
    stage.queue("own", parent="team", state="Closed")
    wait_state(stage, "Open", "team", "child", "grandchild")
    stage.group("a", 1, queue="grandchild")
    wish(stage, "team", "Closed")
    wait_state(stage, "Closed", "team", "child", "own")
    wait_state(stage, "Closing", "grandchild")
    wait_for(lambda: is_flagged(stage, "child") and is_flagged(stage, "grandchild"), what="both marked")
    assert not is_flagged(stage, "own")
    wait_condition(stage, "child", reason="ParentClosed")
    muster.restart(hard=True)
    wish(stage, "team", "Open")
    wait_state(stage, "Open", "team", "child", "grandchild")
    wait_for(
        lambda: not is_flagged(stage, "child") and not is_flagged(stage, "grandchild"), what="marks gone"
    )
    assert state(stage, "own") == "Closed"
    assert "state" not in stage.api.get(QUEUES, "child")["spec"]


def test_the_groups_of_a_queue_that_is_deleted_go_and_their_pods_stay(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    uid = stage.queue("q")["metadata"]["uid"]
    stage.queue("r")
    running = stage.gang("a", 2, queue="q", gated=True)
    stage.wait_phase(running)
    stage.gang("b", 1, queue="r", gated=True)
    stage.wait_group("b", phase="Running")
    wait_for(lambda: _recorded(stage, "a") == uid, what="the queue's UID noted on its group")
    early = stage.gang("early", 1, queue="later", gated=True)
    stage.wait_reason("early", "QueueNotFound")
    muster.kill()
    stage.api.delete(QUEUES, "q")
    muster.start()
    wait_for(lambda: stage.api.find(POD_GROUPS, "a", stage.namespace) is None, what="the group deleted")
    assert stage.phases(running) == {"Running"}
    wait_for(lambda: muster.metric("muster_groups_cleared_total") == 1, what="one group counted")
    assert stage.reason("early") == "QueueNotFound"
    assert stage.pod_group("b")["status"]["phase"] == "Running"
    stage.queue("later")
    stage.wait_phase(early)


def _recorded(stage: Stage, group: str) -> str:
    record = str(stage.pod_group(group)["metadata"].get("annotations", {}).get(NOTE, ""))
    return record.partition("/")[0]


def test_a_queue_counts_its_groups_by_how_they_fare(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q")
    well, badly, running = (stage.gang(name, 1, queue="q", gated=True) for name in ("well", "badly", "runs"))
    stage.wait_phase([*well, *badly, *running])
    stage.gang("waits", 2, cpu="3", queue="q", gated=True)
    stage.finish(well)
    stage.kubelet.finish(stage.namespace, badly, "Failed")
    ended = {"completed": 1, "failed": 1, "unknown": 0, "aborted": 0}
    wanted = {**ended, "running": 1, "pending": 1, "inqueue": 0}
    wait_for(lambda: _counts(stage, "q", wanted) == wanted, what=f"counts {wanted}")
    wish(stage, "q", "Closed")
    wait_state(stage, "Closing", "q")
    _delete_groups(stage, "runs", "waits")
    wanted |= {"running": 0, "pending": 0}
    wait_for(lambda: _counts(stage, "q", wanted) == wanted, what="those that ended are left")
    assert state(stage, "q") == "Closing"
    _delete_groups(stage, "well", "badly")
    wait_state(stage, "Closed", "q")


def _delete_groups(stage: Stage, *names: str) -> None:
    for name in names:
        stage.api.delete(POD_GROUPS, name, stage.namespace)


def _counts(stage: Stage, queue: str, names: Iterable[str]) -> dict[str, int]:
    status = stage.api.get(QUEUES, queue)["status"]
    return {name: status.get(name, -1) for name in names}


def test_writes_are_few(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    """At most one a second, however many gangs come and go, and none when nothing changes."""
    stage.nodes(4, cpu="100")
    stage.queue("q")
    wait_state(stage, "Open", "q")
    written: list[str] = []
    follower = Follower(stage.api, QUEUES, lambda kind, item, _: written.append(_name(kind, item)))
    follower.start()
    began = time.monotonic()
    written.clear()
    for number in range(50):
        gang = stage.gang(f"g{number}", 2, queue="q", gated=True)
        stage.wait_phase(gang)
        stage.delete_pods(gang)
        stage.api.delete(POD_GROUPS, f"g{number}", stage.namespace)
    wait_for(lambda: _is_idle(stage, "q"), what="the queue is empty")
    took = time.monotonic() - began
    assert 1 <= written.count("q") <= took / PACE + 2, f"{took:.1f} s: {written}"
    _assert_silence(stage, written)
    follower.stop()


def _assert_silence(stage: Stage, written: list[str]) -> None:
    """Check that writes stop within a second or two, and that a group of another queue leads to none."""
    wait_for(lambda: _is_stable(written), what="no more writes")
    before = written.count("q")
    stage.wait_phase(stage.gang("other", 1, gated=True))
    assert written.count("q") == before


def _is_stable(written: list[str]) -> bool:
    before = len(written)
    time.sleep(3 * PACE)
    return len(written) == before


def _is_idle(stage: Stage, queue: str) -> bool:
    status = stage.api.get(QUEUES, queue)["status"]
    return not any(status[name] for name in ("pending", "inqueue", "running"))


def _name(kind: str, item: Json) -> str:
    return str(item["metadata"]["name"]) if kind == "MODIFIED" else ""
