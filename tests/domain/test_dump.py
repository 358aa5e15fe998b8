"""A dump has all that decisions depend on: read elsewhere, the same is decided, byte for byte."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from extender.api import keys
from extender.api.objects.cluster import Taint
from extender.api.objects.pods import Toleration
from extender.domain.explain.dump import (
    Dump,
    InvalidDump,
    Pseudonyms,
    as_bytes,
    differences,
    dump,
    keyed_hash,
    read_dump,
    rename_dump,
    replay,
)
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions
from tests.domain.builders import anti_affinity, flavor, foreign_pod, node, on_flavor, queue
from tests.domain.inadmissible_world import FLAVORS, crowd, divided_cluster, full_cluster
from tests.domain.test_stateful_inadmissible import Waiting
from tests.domain.test_stateful_sharing import Sharing
from tests.domain.world import World, gang, key
from tests.property_examples import examples
from tests.rows import each_of

VERSIONS = {"muster": "1.2.3", "python": "3.11"}
KNOWN_FIELDS = {"window": 1000}
WORLDS = {"crowd": crowd, "full": full_cluster, "divided": divided_cluster}
few = settings(
    max_examples=examples(1),
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def dumped(decisions: Decisions) -> bytes:
    written = dump(decisions, VERSIONS, KNOWN_FIELDS)
    assert written is not None
    return written


def is_replayed(decisions: Decisions) -> bool:
    found = read_dump(dumped(decisions), "1.2.3")
    assert as_bytes(found.decisions) == as_bytes(decisions)
    return replay(found.snapshot, found.decisions).is_same


def in_the_same_order(part: str) -> str:
    return f"{part}!"


def other_names(decisions: Decisions, hashed: Callable[[str], str]) -> Dump:
    return read_dump(rename_dump(read_dump(dumped(decisions), "1.2.3"), hashed), "1.2.3")


class Dumped:
    """Mixin for a machine with a world: a dump, with the remembered state, leads to the same decisions."""

    @invariant()
    def the_same_is_decided_elsewhere(self: Any) -> None:
        ledger = self.world.ledger
        decisions = decide(ledger.snapshot(), ledger.decisions)
        assert is_replayed(decisions)
        assert other_names(decisions, in_the_same_order).file.otherwise == 0


class DumpedShares(Dumped, Sharing):
    pass


class DumpedCrowds(Dumped, Waiting):
    pass


TestDumpedShares = DumpedShares.TestCase
TestDumpedShares.settings = few
TestDumpedCrowds = DumpedCrowds.TestCase
TestDumpedCrowds.settings = few


def test_decisions_do_not_depend_on_hash_seeds(tmp_path: Path) -> None:
    """Texts are hashed otherwise in each process, so that what depends on the order of a set would differ."""
    for name, world in WORLDS.items():
        (tmp_path / name).write_bytes(dumped(world().ledger.decisions))
    program = (
        "import sys; from pathlib import Path; from extender.domain.explain.dump import *\n"
        "for name in sys.argv[1:]:\n"
        "    found = read_dump(Path(name).read_bytes(), '1.2.3')\n"
        "    assert replay(found.snapshot, found.decisions).is_same, name"
    )
    files = [str(tmp_path / name) for name in WORLDS]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", program, *files], env=environment, check=True)


def test_a_dump_says_when_and_how_it_was_decided() -> None:
    world = full_cluster()
    file = read_dump(dumped(world.ledger.decisions), "1.2.3").file
    assert (file.muster, file.python, file.configuration) == ("1.2.3", "3.11", KNOWN_FIELDS)
    assert file.taken == "2026-01-01T00:16:40Z"
    assert file.slept == 1  # the group that has all it needs: its decision was reused


def test_flavors_terms_and_refusals_are_in_the_dump() -> None:
    world = World(queue("q", flavors=FLAVORS), foreign_pod("s", labels={"app": "x"}, on="spot"))
    world.add(*(node(kind, labels=on_flavor(kind)) for kind in ("spot", "ondemand")))
    world.add(gang("g", 2, queue="q", labels={"app": "x"}, affinity=anti_affinity(app="x"))).settle()
    world.answer("g-0")
    world.refuse("g-0")
    for _ in range(4):
        assert is_replayed(world.settle().advance(1.0).ledger.decisions)
    file = read_dump(dumped(world.ledger.decisions), "1.2.3").file
    assert file.snapshot["occupancy"]["selected_counts"]


def test_no_dump_exists_before_the_first_decision() -> None:
    assert dump(Decisions(), VERSIONS, KNOWN_FIELDS) is None


def test_a_replay_on_another_state_names_groups_with_another_decision() -> None:
    before = full_cluster().ledger.decisions
    found = read_dump(dumped(before), "1.2.3")
    now = full_cluster().add(node("n9", cpu="8")).settle().ledger.decisions
    result = replay(found.snapshot, now)
    assert not result.is_same
    changed = [each.group for each in differences(before, now)]
    assert [each.group for each in result.differences] == changed
    assert key("one") in changed
    assert key("done") not in changed


# ---- other names

NAMES = ("acme", "Zoë", "🔥", "<script>alert(1)</script>", "ключ", "a'b\"c\\\n{d}")


def named_world() -> World:
    """Return a world in which each kind of name is a customer's."""
    spec = {"acme-cores": "8", "cpu": "8"}
    world = World(queue("acme-q", flavors=[flavor("acme-fast", {"cpu": "9"})], capability=spec))
    labels = {"acme.com/team": "acme-lab", "app": "acme-app", **on_flavor("acme-fast")}
    world.add(node("acme-n", labels=labels, taints=[Taint("acme.com/t", "NoSchedule", "acme-v")]))
    tolerated = Toleration("acme.com/t", "Equal", "acme-v", "NoSchedule")
    pods: dict[str, Any] = {"labels": labels, "tolerations": [tolerated], "selector": {"app": "acme-app"}}
    notes = {keys.SUBMITTER: " ".join(NAMES)}
    world.add(gang("acme-g", 2, queue="acme-q", notes=notes, affinity=anti_affinity(app="acme-app"), **pods))
    world.add(gang("acme-h", 1, queue="acme-q", **pods), foreign_pod("acme-s", on="acme-n", labels=labels))
    world.settle()
    world.refuse("acme-h-0", "0/1 nodes are available: 1 node(s) had no acme-disk.")
    return world.settle()


def test_no_name_is_left() -> None:
    decisions = named_world().ledger.decisions
    for part in ("acme", "team", "Zo", "🔥", "script", "ключ", "uid-"):
        assert part.encode() in dumped(decisions)
    raw = rename_dump(read_dump(dumped(decisions), "1.2.3"), keyed_hash(b"secret"))
    for part in ("acme", "team", "Zo", "🔥", "script", "ключ", "uid-", "window"):
        assert part.encode() not in raw


def test_pseudonyms_differ_from_dump_to_dump() -> None:
    found = read_dump(dumped(named_world().ledger.decisions), "1.2.3")
    assert rename_dump(found, keyed_hash(b"one")) == rename_dump(found, keyed_hash(b"one"))
    assert set(Pseudonyms(keyed_hash(b"one"), ())("acme-g")) - {""}
    assert Pseudonyms(keyed_hash(b"one"), ())("acme-g") != Pseudonyms(keyed_hash(b"two"), ())("acme-g")


@each_of(*WORLDS.values(), named_world)
def test_under_other_names_the_same_is_decided(world: Callable[[], World]) -> None:
    """Compare groups that differ in age: no name decides the order."""
    found = other_names(world().ledger.decisions, keyed_hash(b"secret"))
    assert (found.file.renamed, found.file.otherwise) == (True, 0)
    assert replay(found.snapshot, found.decisions).is_same


def test_a_difference_is_counted_where_names_decide_the_order() -> None:
    """Both groups have the same age, and one fits."""
    world = World(node("a", cpu="1"), gang("first", 1), gang("second", 1))
    changed = other_names(decide(world.ledger.snapshot()), lambda part: "z" if part == "first" else part)
    assert changed.file.otherwise == 2


def test_resource_names_and_labels_stay_in_an_anonymous_dump() -> None:
    names = Pseudonyms(lambda part: "X", ["example.com/device"])
    reserved = "2026-01-01T00:00:00Z kubernetes.io/hostname=3 example.com/device default/pod:-4"
    assert names(reserved) == reserved
    assert names('team/pod:train-0 {"key":"zone"} Ünder/a_b.c') == 'X/pod:X {"key":"X"} X/X'


WHOLE = dumped(full_cluster().ledger.decisions)
CUT, OTHER_KIND = "it is no JSON, or was cut off", "its kind is not MusterDump"


def edited(**parts: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(WHOLE), **parts})


@each_of(
    (b"", CUT),
    (WHOLE[:-1], CUT),
    (WHOLE[: len(WHOLE) // 2], CUT),
    (gzip.compress(WHOLE), CUT),
    (b"[" * 10**6, CUT),
    (b'{"kind": "\xff"}', CUT),
    (b"[]", OTHER_KIND),
    (b'{"kind": "List"}', OTHER_KIND),
    (edited(muster="1.2.2"), "muster 1.2.2 wrote it, and this is muster 1.2.3"),
    (edited(slept="many"), "it is not as muster wrote it: Expected `int`, got `str`"),
    (edited(shapes={}), "it is not as muster wrote it: Expected `array`, got `object`"),
    (edited(shapes=[]), "Snapshot.groups: GroupInfo.placed_pods: PodRecord.shape: IndexError"),
    (
        edited(snapshot={}),
        "it is not as muster wrote it: Snapshot: TypeError: Missing required argument 'version'",
    ),
    (edited(snapshot={"nows": 1}), "it is not as muster wrote it: Snapshot.nows"),
    (
        edited(decisions={"queues": {"q": {"weight": "4"}}}),
        "QueueDecision.weight: invalid value '4', which is no int",
    ),
    (edited(decisions={"groups": [1]}), "Decisions.groups: invalid value '[1]', which is no dict"),
)
def test_bytes_that_are_no_dump_are_refused_in_a_sentence(raw: bytes, why: str) -> None:
    with pytest.raises(InvalidDump) as refused:
        read_dump(raw, "1.2.3")
    assert why in str(refused.value)


@each_of(*range(0, len(WHOLE), max(len(WHOLE) // 40, 1)))
def test_a_dump_with_a_fault_anywhere_is_read_or_refused(place: int) -> None:
    damaged = WHOLE[:place] + b"9" + WHOLE[place + 1 :]
    with suppress(InvalidDump):
        read_dump(damaged, "1.2.3")
