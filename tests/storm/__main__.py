"""Storm of faults on a real control plane: `python -m tests.storm --seconds 600 --seed 7`.

With `--campaign FILE`: all storms of the file that its results do not have yet, and one table. Ends with 0
when nothing was violated, 1 when something was, 2 when it could not run.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e import build
from tests.e2e.build import BuildError
from tests.e2e.harness import loopback
from tests.storm.campaign import Campaign
from tests.storm.plan import Mix, plan
from tests.storm.progress import Progress
from tests.storm.report import report_of
from tests.storm.series import BadSeries, Series, records_of, run
from tests.storm.storm_cluster import storm_cluster
from tests.storm.table import table_of


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.campaign and not options.mix:
        return _run_series(Series.read(options.campaign), options)
    mix = Series.read(options.campaign).mix(options.mix) if options.mix else Mix(view=options.view)
    if options.plan:
        for step in plan(options.seed, options.seconds, mix):
            _show(f"{step.at:8.1f} s  {step.kind:24} {step.gang_spec or f'for {step.lasting:.1f} s'}")
        return 0
    if mix.ipv6:
        os.environ[loopback.SETTING] = "::1"
    progress = Progress(options.seconds)
    with storm_cluster(options.kubernetes, mix) as new_cluster:
        outcome = Campaign(new_cluster, options.seed, options.seconds, mix, progress).run()
    progress.close()
    shutil.rmtree(outcome.folder / "etcd", ignore_errors=True)
    _show(report_of(outcome))
    if options.record:
        options.record.write_text(json.dumps(outcome.record()))
    return 1 if outcome.violations else 0


def _run_series(series: Series, arguments: argparse.Namespace) -> int:
    """Run the storms of a series; earlier ones are in the results, and are not run again."""
    results: Path = arguments.results or Path("build/soak") / f"{series.file.stem}.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    for storm in series.remaining(records_of(results)):
        _show(f"storm {storm}")
        record = run(storm, series.file, ["--kubernetes", arguments.kubernetes])
        with results.open("a") as file:
            file.write(json.dumps(record) + "\n")
    records = records_of(results)
    _show(table_of(records))
    _show(f"results: {results}")
    return 1 if any("failed" in record or record["violations"] for record in records) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--seconds", type=_positive, default=60, help="seconds of arrivals and faults (60)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the plan (1)")
    parser.add_argument(
        "--kubernetes", default=build.DEFAULT, help=f"release of Kubernetes ({build.DEFAULT})"
    )
    parser.add_argument(
        "--view",
        action="store_true",
        help="the scheduler reads through Muster, and is cut off every few seconds",
    )
    parser.add_argument("--campaign", type=Path, metavar="FILE", help="a file of tests/storm/campaigns")
    parser.add_argument("--mix", help="run only one storm, with this mix of the campaign")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="results of a campaign (build/soak/NAME.jsonl)"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="the file for the result of one storm")
    parser.add_argument("--plan", action="store_true", help="only print the plan")
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
    except (BuildError, BadSeries) as error:
        _show(f"error: {error}")
        sys.exit(2)
