"""One watch of pods after another, under any order of changes, releases, cuts and restarts.

Versions never go back, nothing is unbound after it was bound, and when everything is quiet, the scheduler
believes in those unbound pods that Muster has released, and in all bound ones.
"""

import pytest

from tests.domain.view.world import World

EACH = 250  # worlds in a test


@pytest.mark.parametrize("first", range(0, 2000, EACH))
def test_the_scheduler_believes_a_history_that_the_api_could_have_had(first: int) -> None:
    for seed in range(first, first + EACH):
        world = World(seed)
        try:
            world.run(80)
        except AssertionError as fault:
            raise AssertionError(f"world {seed}, after {' '.join(world.log[-40:])}: {fault}") from fault
