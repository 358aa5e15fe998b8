"""Run of conformance cases: `python -m tests.conformance [PATH…]` prints failures, and counts by kind.

A path is a file of cases, or a folder with such files; without one, those in `data` are run.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.cases import DATA, BadCases, load
from tests.conformance.judge import judge
from tests.conformance.report import lines
from tests.conformance.verdicts import Outcome


def main(arguments: Sequence[str]) -> int:
    try:
        cases = load(*(map(Path, arguments) if arguments else [DATA]))
    except BadCases as fault:
        print(fault, file=sys.stderr)  # noqa: T201
        return 2
    reviewed = [(case, judge(case)) for case in cases]
    print("\n".join(lines(reviewed)))  # noqa: T201
    return 1 if any(result.outcome is Outcome.FAILED for _, result in reviewed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
