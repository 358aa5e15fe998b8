"""Messages about readers of pods through the proxy."""

from extender.domain.ledger.releases import Bypasses
from extender.proxy.pods import PodReader, readers_text
from tests.rows import each_of

SCHEDULER = PodReader("kube-scheduler/v1.36.3 (linux/amd64) kubernetes/f2dd8b9/scheduler", 312.4, 0.8)
READS = "kube-scheduler/v1.36.3 reads pods here for 5m12s, and got the last event 0s ago"


@each_of(
    ([], Bypasses(), "no client reads pods here"),
    ([SCHEDULER], Bypasses(), READS),
    (
        [SCHEDULER, PodReader("", 5, 130)],
        Bypasses(),
        f"{READS}; a client reads pods here for 5s, and got the last event 2m10s ago",
    ),
    (
        [],
        Bypasses(1, 61.0),
        "no client reads pods here; a scheduler reads pods elsewhere: 1 call about pods not shown here, "
        "the last 61s ago",
    ),
    (
        [SCHEDULER],
        Bypasses(7, 0.1),
        f"{READS}; a scheduler reads pods elsewhere: 7 calls about pods not shown here, the last 0s ago",
    ),
)
def test_one_line_says_who_reads(readers: list[PodReader], detours: Bypasses, shown: str) -> None:
    assert readers_text(readers, detours) == shown
