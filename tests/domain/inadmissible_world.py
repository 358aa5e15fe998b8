"""Worlds in which most groups wait."""

from typing import Any

from extender.api import keys
from extender.api.objects.queues import QueueFlavor
from tests.domain.builders import flavor, foreign_pod, group, node, on_flavor, pod, queue
from tests.domain.world import World, gang, timestamp

WAITING = 24
USERS = ("ann", "bob", "cyd", "")  # empty: unknown
QUEUES = ("pa", "pb", "q")
RUNNING = tuple(f"r{n}" for n in range(3))
NODES = tuple(f"n{n}" for n in range(3))
FLAVORS = (flavor("spot", {"cpu": "20"}), flavor("ondemand"))
SHARED = (QueueFlavor("spot", capability={"cpu": "20"}, resource_flavor="f"), flavor("ondemand"))


def crowd(ages: float = 100.0, **queues: dict[str, Any]) -> World:
    """Return a world with two full nodes, three queues, two of them with a common parent, and waiting gangs.

    `ages`: minimum seconds for which gangs have waited. `queues`: fields of the queues' specs.
    """
    world = World(node("n0", cpu="4"), node("n1", cpu="4"), queue("p"))
    for name in QUEUES:
        world.add(queue(name, parent="p" if name.startswith("p") else "", **queues.get(name, {})))
    for number, name in enumerate(RUNNING):
        world.add(gang(name, 1, queue=QUEUES[number], cpu="2", created=timestamp(0))).settle().start(name)
    world.add(foreign_pod("s", on="n1", cpu="1.7"))
    for number in range(WAITING):
        created = timestamp(1000 - ages - number)
        annotations = {keys.SUBMITTER: USERS[number % 4]}
        fields: dict[str, Any] = {"cpu": "1", "created": created, "notes": annotations}
        world.add(gang(f"w{number}", 1 + number % 2, queue=QUEUES[number % 3], **fields))
    for _ in range(20):  # a reservation a second, up to their limit
        world.settle().advance(1.0)
    return world.settle()


def full_cluster() -> World:
    """Return a world with nodes of 4 cpu, of which 1 is free. Gangs with one and with two shapes wait."""
    world = World([node(name, cpu="4") for name in NODES], queue("q"), queue("r"))
    created: dict[str, Any] = {"created": timestamp(1000)}
    world.add([gang("done", 1, queue="q", cpu="100m", **created)]).settle().start("done")
    world.add([foreign_pod(f"old-{name}", on=name, cpu="2900m") for name in NODES])
    world.add(gang("one", 2, queue="q", cpu="2", **created), gang("same", 2, queue="r", cpu="2", **created))
    world.add(group("two", 3, queue="r", **created), pod("driver", "two", cpu="500m", **created))
    world.add([pod(f"worker-{n}", "two", cpu="2500m", **created) for n in range(2)])
    return world.settle().settle()


def divided_cluster() -> World:
    """Return a world with 1.5 free cpus on a node of each flavor, and a gang of two that does not fit."""
    world = World(queue("q", flavors=FLAVORS), node("old", cpu="4"))
    for kind in ("spot", "ondemand"):
        world.add(
            node(kind, cpu="400", labels=on_flavor(kind)), foreign_pod(f"s-{kind}", on=kind, cpu="398.5")
        )
    return world.add(gang("g", 2, queue="q")).settle()
