"""How many examples the tests of properties take: few of the same in every run, or many others by hand.

`MUSTER_EXAMPLES=20` stands for 20 times as many, other ones in each run:

    MUSTER_EXAMPLES=20 make test ARGS="tests/domain --timeout 0"
"""

import os

TIMES = int(os.environ.get("MUSTER_EXAMPLES", "1"))


def examples(few: int) -> int:
    return few * TIMES
