"""Totals of shapes, kept from round to round."""

import numpy as np

from extender.domain.model.shapes import Shape
from extender.domain.placement.capacity import FEW, KeptTotals
from tests.domain.builders import node, pod
from tests.domain.world import World

ASKED = 10  # shapes that a round of all groups asks for


def shapes(count: int) -> list[Shape]:
    world = World(*(pod(f"p{number}", cpu=f"{1 + number}m") for number in range(count)))
    return [group.waiting[0].shape for group in world.ledger.snapshot().groups.values()]


def test_those_of_groups_that_are_gone_are_forgotten_even_without_a_round_of_all() -> None:
    snapshot = World(node("n0")).ledger.snapshot()
    known, totals, largest = shapes(ASKED + 500), None, 0
    for number in range(500):
        totals = KeptTotals(snapshot.room, snapshot.nodes, {}, totals)
        asked = known[:ASKED] if number == 0 else [known[ASKED + number]]
        totals.known |= dict.fromkeys(asked, 1)
        totals = totals.without_history() if number == 0 else totals.with_those_left_out(lambda *_: 0)
        largest = max(largest, len(totals.known))
    assert FEW < largest <= 2 * ASKED + FEW + 1


def test_what_was_left_out_is_corrected_by_what_has_changed() -> None:
    snapshot = World(node("n0")).ledger.snapshot()
    (shape,) = shapes(1)
    before = KeptTotals(snapshot.room, snapshot.nodes, {})
    before.known[shape] = 7
    room = np.array(snapshot.room)
    room[0] += 1
    totals = KeptTotals(room, snapshot.nodes, {}, before.without_history())
    totals.with_those_left_out(lambda _, matrix, rows: int(matrix[rows, 0].sum()))
    assert totals.known[shape] == 8
