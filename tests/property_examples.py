"""Number of examples of property tests.

The number in a test is the full one. `make test` takes a third of them and at least three, the same in every
run. `make nightly` takes twenty times the number, other ones in each run, and `MUSTER_EXAMPLES=20` does so by
hand:

    MUSTER_EXAMPLES=20 make test ARGS="tests/domain --timeout 0"

`make coverage` takes 0.7 of them: its floors need more than a third.
"""

import os

TIMES = float(os.environ.get("MUSTER_EXAMPLES", "0.33"))
MIN_EXAMPLES = 3  # the first one is the simplest that there is


def examples(full_number: int) -> int:
    return max(min(full_number, MIN_EXAMPLES), round(full_number * TIMES))
