"""Table of all kinds of faults."""

from tests.storm.faults import (
    on_cluster,
    on_leaders,
    on_machines,
    on_objects,
    on_processes,
    on_requests,
    on_watches,
    on_wires,
)
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, NoVictim
from tests.storm.faults.on_requests import Standstill

__all__ = ["FAULTS", "FaultContext", "Inflict", "InflictedFault", "NoVictim", "Standstill"]

FAULTS: dict[str, Inflict] = {
    **on_cluster.FAULTS,
    **on_leaders.FAULTS,
    **on_machines.FAULTS,
    **on_objects.FAULTS,
    **on_processes.FAULTS,
    **on_requests.FAULTS,
    **on_watches.FAULTS,
    **on_wires.FAULTS,
}
