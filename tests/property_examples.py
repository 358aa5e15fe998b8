"""Number of examples of property tests.

The number in a test is the full one. `make test` takes half of them, the same in every run. `make nightly`
takes twenty times as many, other ones in each run, and `MUSTER_EXAMPLES=20` does so by hand:

    MUSTER_EXAMPLES=20 make test ARGS="tests/domain --timeout 0"

`make coverage` takes 0.7 of them: its floors need more than half.
"""

import os

TIMES = float(os.environ.get("MUSTER_EXAMPLES", "0.5"))


def examples(few: int) -> int:
    return max(1, round(few * TIMES))
