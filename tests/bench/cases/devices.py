"""Cost of DRA devices, compared with devices of a device plugin. Each node has 8 devices for gangs.

- `slices s`: time to read the ResourceSlices of all nodes, with three device classes
- `slice ms`: time to read a changed ResourceSlice
- `MB`: memory of the inventory of devices
- `claims ms`: time of a decision on gangs that claim devices
- `plugin ms`: time of a decision on gangs that request as many devices of a device plugin
- `ratio`: `claims ms` divided by `plugin ms`
- `start s`: time to read the nodes, a pod for each device, and the slices, until the end of the first
  decision
- `start ratio`: `start s` divided by the time of the same cluster without slices
"""

import gc
import os
import time
from collections.abc import Iterable, Iterator
from statistics import median

import msgspec
from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.cluster import Node
from extender.api.objects.devices import (
    CelSelector,
    ClaimSpec,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactRequest,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from extender.api.objects.pods import Pod, PodClaim
from extender.domain.ledger.devices import DeviceInventory
from extender.domain.model.device_requests import ClaimKey
from extender.domain.scheduling.decide import decide
from tests.bench.cases.deciding import decided_once
from tests.bench.meters import megabytes
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.domain import builders
from tests.domain.world import World

DRIVER, PLUGIN = "gpu.example.com", "example.com/gpu"
DEVICES_PER_NODE, MEMBERS, GANGS, REPEATS, STARTS = 8, 100, 5, 5, 3
SELECTORS = {
    "gpu": f'device.driver == "{DRIVER}"',
    "h100": f'device.attributes["{DRIVER}"].productName == "h100"',
    "large": f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0',
}


def devices_case(bench: Bench) -> Iterator[Row]:
    """Yield one row with all figures."""
    nodes = bench.sizes.most_nodes
    show(f"devices: {nodes * DEVICES_PER_NODE} on {nodes} nodes")
    world = World(*(builders.node(f"n{n}", "64", more={PLUGIN: str(DEVICES_PER_NODE)}) for n in range(nodes)))
    inventory = DeviceInventory(world.ledger.intake)
    for name, expression in SELECTORS.items():
        spec = DeviceClassSpec([DeviceSelector(CelSelector(expression))])
        inventory.set_class(DeviceClass(Meta(name=name), spec))
    memory_before, started_at = megabytes(os.getpid()), time.perf_counter()
    for number in range(nodes):
        inventory.set_slice(_slice(number, generation=1))
    slices_seconds = time.perf_counter() - started_at
    update_times = [
        _update_milliseconds(inventory, _slice(number, generation=2)) for number in range(min(nodes, 100))
    ]
    _decision_milliseconds(world, "warm-up")
    plugin_ms, claims_ms = _decision_milliseconds(world, "plugin"), _decision_milliseconds(world, "claims")
    yield {
        "nodes": nodes,
        "slices s": slices_seconds,
        "slice ms": median(update_times),
        "MB": megabytes(os.getpid()) - memory_before,
        "claims ms": claims_ms,
        "plugin ms": plugin_ms,
        "ratio": claims_ms / plugin_ms,
        **_start_row(nodes),
    }


def _start_row(nodes: int) -> Row:
    """Return the seconds until the end of the first decision with devices.

    The ratio divides these seconds by those of the same cluster without devices.
    """
    encoded_nodes = [msgspec.json.encode(builders.node(f"n{n}", "64")) for n in range(nodes)]
    encoded_pods = [
        msgspec.json.encode(builders.pod(f"p{n}-{index}", on=f"n{n}", phase="Running"))
        for n in range(nodes)
        for index in range(DEVICES_PER_NODE)
    ]
    encoded_slices = [msgspec.json.encode(_slice(n, generation=1)) for n in range(nodes)]
    times_by_devices: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(STARTS):
        for has_devices, times in times_by_devices.items():
            gc.collect()
            times.append(
                _seconds_to_start(encoded_nodes, encoded_pods, encoded_slices if has_devices else ())
            )
    seconds_without, seconds_with = min(times_by_devices[False]), min(times_by_devices[True])
    return {"start s": seconds_with, "start ratio": seconds_with / seconds_without}


def _seconds_to_start(nodes: Iterable[bytes], pods: Iterable[bytes], slices: Iterable[bytes]) -> float:
    """Read a cluster from encoded objects and decide once. Return the seconds."""
    started_at, world = time.perf_counter(), World()
    inventory = DeviceInventory(world.ledger.intake)
    for node in map(msgspec.json.Decoder(Node).decode, nodes):
        world.ledger.intake.set_node(node)
    for name, expression in SELECTORS.items():
        selectors = [DeviceSelector(CelSelector(expression))]
        inventory.set_class(DeviceClass(Meta(name=name), DeviceClassSpec(selectors)))
    for device_slice in map(msgspec.json.Decoder(ResourceSlice).decode, slices):
        inventory.set_slice(device_slice)
    for pod in map(msgspec.json.Decoder(Pod).decode, pods):
        world.ledger.pods.set_pod(pod)
    decide(world.ledger.snapshot())
    return time.perf_counter() - started_at


def _slice(number: int, generation: int) -> ResourceSlice:
    pool = ResourcePool(f"n{number}", generation, 1)
    devices = [_device(number, index) for index in range(DEVICES_PER_NODE)]
    return ResourceSlice(Meta(name=f"s{number}"), ResourceSliceSpec(DRIVER, f"n{number}", pool, devices))


def _device(node: int, index: int) -> Device:
    attributes = {
        "uuid": DeviceAttribute(string=f"GPU-{node}-{index}"),
        "productName": DeviceAttribute(string="h100"),
        "index": DeviceAttribute(integer=index),
        "driverVersion": DeviceAttribute(version="550.1.0"),
    }
    return Device(f"gpu-{index}", attributes, {"memory": DeviceCapacity("80Gi")})


def _update_milliseconds(inventory: DeviceInventory, changed_slice: ResourceSlice) -> float:
    started_at = time.perf_counter()
    inventory.set_slice(changed_slice)
    return 1000 * (time.perf_counter() - started_at)


def _decision_milliseconds(world: World, kind: str) -> float:
    """Return the milliseconds of a decision on a few gangs. The gangs are deleted afterwards.

    With the kind `claims`, the pods claim devices of DRA. With another kind, the pods request devices of a
    device plugin.
    """
    two_devices = ClaimSpec(DeviceClaim([DeviceRequest("gpu", ExactRequest("gpu", count=2))]))
    world.ledger.intake.set_claim(ClaimKey(builders.NAMESPACE, "two"), two_devices)
    for gang in range(GANGS):
        world.add(builders.group(f"{kind}{gang}", MEMBERS))
        world.add(*(_pod(f"{kind}{gang}-{n}", f"{kind}{gang}", kind) for n in range(MEMBERS)))
    milliseconds = median(decided_once(world, None)[1] for _ in range(REPEATS))
    world.delete(*(f"{kind}{gang}-{n}" for gang in range(GANGS) for n in range(MEMBERS)))
    return milliseconds


def _pod(name: str, group: str, kind: str) -> Pod:
    """Return a pod that needs two devices, by a claim or by a device plugin."""
    if kind != "claims":
        return builders.pod(name, group, more={PLUGIN: "2"})
    pod = builders.pod(name, group)
    claims = [PodClaim("gpu", resource_claim_template_name="two")]
    return replace(pod, spec=replace(pod.spec, resource_claims=claims))
