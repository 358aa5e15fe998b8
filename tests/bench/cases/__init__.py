"""Benchmark cases by name, in the order in which they run.

Each case yields a row as soon as it is measured.
"""

from collections.abc import Callable, Iterator

from tests.bench.cases.aborting import abort
from tests.bench.cases.bursting import burst
from tests.bench.cases.deciding import decide_case
from tests.bench.cases.devices import devices_case
from tests.bench.cases.estimating import estimate_case
from tests.bench.cases.evicting import evict_case
from tests.bench.cases.flooding import flood_case
from tests.bench.cases.growing import growth
from tests.bench.cases.hostile import hostile
from tests.bench.cases.queueing import queueing, waiting
from tests.bench.cases.racing import algorithm, cpu, makespan
from tests.bench.cases.relaying import view_case
from tests.bench.cases.reserving import reservations_case
from tests.bench.cases.showing import show_case
from tests.bench.cases.starting import start
from tests.bench.cases.topology import topology_case
from tests.bench.cases.turning import turns
from tests.bench.report import Row
from tests.bench.sizes import Bench

CASES: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "makespan": makespan,
    "algorithm": algorithm,
    "cpu": cpu,
    "evict": evict_case,
    "flood": flood_case,
    "abort": abort,
    "burst": burst,
    "decide": decide_case,
    "devices": devices_case,
    "estimates": estimate_case,
    "growth": growth,
    "hostile": hostile,
    "dashboard": show_case,
    "reservations": reservations_case,
    "queueing": queueing,
    "waiting": waiting,
    "start": start,
    "topology": topology_case,
    "view": view_case,
    "turns": turns,
}
