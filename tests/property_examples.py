"""How many examples the tests of properties take: few of the same in every run, or many others by hand and in
`make nightly`.

Every run of `make test` sees the same ones, so more of them find little more. Where an example is costly, as
with a decision at each step, it takes 6 to 50. `MUSTER_EXAMPLES=20` stands for 20 times as many, other ones
in each run:

    MUSTER_EXAMPLES=20 make test ARGS="tests/domain --timeout 0"

A part of 1 takes fewer of the same: `make coverage` counts what is reached, and measuring that is slow.
"""

import os

TIMES = float(os.environ.get("MUSTER_EXAMPLES", "1"))


def examples(few: int) -> int:
    return max(1, round(few * TIMES))
