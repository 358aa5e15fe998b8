"""Rate of PATCHes for the numbers in the statuses of waiting groups.

Groups lack capacity, and each second a foreign pod of another size replaces the one before, so that the
message of every group changes. All parts are real but the API server, which only records the writes, and the
clock, which is virtual. Then there is capacity for one of them: with the numbers of all others queued, is its
start reported within one look?
"""

import time
from collections.abc import Iterator

from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.controllers.podgroup_desk import Desk, crowd, requeue_changed
from tests.domain.builders import node

_SECONDS = 30


def run(bench: Bench) -> Iterator[Row]:
    for groups in bench.sizes.written:
        show(f"{groups} groups wait for {_SECONDS} s")
        yield _row(groups)


def _row(groups: int) -> Row:
    desk = Desk(crowd(groups))
    with desk.writing():
        desk.look()
        patches, spent = [], 0.0
        for second in range(_SECONDS):
            requeue_changed(desk, second)
            started = time.thread_time()
            desk.reporter.on_decisions(desk.decisions)
            spent += time.thread_time() - started
            patches.append(len(desk.look()))
        desk.add(node("b", cpu="4")).settle()
        desk.look()
    starts = sum(copy.status.phase == "Inqueue" for copy in desk.copies.values())
    return {
        "groups": groups,
        "patches a second": sum(patches) / _SECONDS,
        "most in a second": max(patches),
        "a look ms": spent / _SECONDS * 1000,
        "starts told at once": starts,
    }
