"""`python -m tests.storm --seconds 600 --seed 7`: a fault campaign on a real control plane.

Ends with 0 when nothing was violated, 1 when something was, 2 when it could not run.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence

from tests.e2e import build
from tests.e2e.build import BuildError
from tests.storm.arena import arena
from tests.storm.campaign import Campaign
from tests.storm.plan import plan
from tests.storm.progress import Progress
from tests.storm.report import report_of


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    if asked.plan:
        for step in plan(asked.seed, asked.seconds, view=asked.view):
            _show(f"{step.at:8.1f} s  {step.kind:24} {step.wish or f'for {step.lasting:.1f} s'}")
        return 0
    progress = Progress(asked.seconds)
    with arena(asked.kubernetes, view=asked.view) as made:
        outcome = Campaign(made, asked.seed, asked.seconds, progress).run()
    progress.close()
    shutil.rmtree(outcome.folder / "etcd", ignore_errors=True)
    _show(report_of(outcome))
    return 1 if outcome.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--seconds", type=_positive, default=60, help="how long things break (60)")
    parser.add_argument("--seed", type=int, default=1, help="what the plan is made from (1)")
    parser.add_argument("--kubernetes", default=build.DEFAULT, help=f"which release ({build.DEFAULT})")
    parser.add_argument(
        "--view",
        action="store_true",
        help="the scheduler reads through Muster, and is cut off every few seconds",
    )
    parser.add_argument("--plan", action="store_true", help="print the plan, and do nothing")
    return parser


def _positive(text: str) -> float:
    if (seconds := float(text)) <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return seconds


def _show(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BuildError as error:
        _show(f"error: {error}")
        sys.exit(2)
