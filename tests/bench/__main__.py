"""`python -m tests.bench [CASE ...]` runs the cases one by one, and prints each row when it is complete."""

import argparse
import signal
import sys
from collections.abc import Sequence

from tests.bench import machine, slices
from tests.bench.cases import CASES
from tests.bench.cases.racing import Races
from tests.bench.report import FORMATS, Report, show
from tests.bench.sizes import QUICK, VARIANTS, Bench, Sizes
from tests.e2e.build import BuildError


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    sizes = _sizes(options)
    report = Report(options.output)
    report.header({**machine.machine_row(), "sizes": str(sizes)})
    bench = Bench(sizes, Races(sizes))
    failed_cases = [name for name in options.cases or CASES if not _run(name, bench, report)]
    report.close()
    return 1 if failed_cases else 0


def _run(name: str, bench: Bench, report: Report) -> bool:
    """Run one case, and return whether it succeeded.

    A failed case prints a row with its error, and the other cases still run.
    """
    show(f"case {name}")
    try:
        for row in CASES[name](bench):
            report.row(name, row)
    except BuildError:
        raise
    except Exception as fault:
        report.row(name, {"error": f"{type(fault).__name__}: {fault}"[:500]})
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of {', '.join(CASES)}; all by default")
    parser.add_argument("--nodes", type=_numbers, help="sizes of the cluster: 1000,5000")
    parser.add_argument("--pods", type=int, help="pods of one race; the other loads follow from it")
    parser.add_argument("--gang", type=_numbers, help="sizes of the gangs: 20,500")
    parser.add_argument("--rounds", type=int, help="how often each race is run")
    parser.add_argument("--bound", type=int, help="running pods before a race: 100000")
    parser.add_argument("--variants", type=_list, help=f"variants that race with stock: {','.join(VARIANTS)}")
    parser.add_argument(
        "--own-cores", action="store_true", help="races in which each part has its own slice of the CPU"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that everything works")
    parser.add_argument("-o", "--output", choices=FORMATS, default=FORMATS[0])
    return parser


def _sizes(arguments: argparse.Namespace) -> Sizes:
    """Return the sizes of the options. Exit with an error for an unknown case or variant."""
    unknown_cases = [name for name in arguments.cases if name not in CASES]
    if unknown_cases:
        _parser().error(f"CASE: {', '.join(unknown_cases)}: unknown, allowed: {', '.join(CASES)}")
    base_sizes = QUICK if arguments.quick else Sizes()
    if arguments.own_cores:
        try:
            slices.find_hierarchy()
        except slices.NoSlices as fault:
            _parser().error(f"--own-cores: {fault}")
    unknown_variants = [name for name in arguments.variants or () if name not in VARIANTS]
    if unknown_variants:
        _parser().error(f"--variants: {', '.join(unknown_variants)}: unknown, allowed: {', '.join(VARIANTS)}")
    options = {
        "nodes": arguments.nodes,
        "pods": arguments.pods,
        "gangs": arguments.gang,
        "rounds": arguments.rounds,
    }
    options |= {"variants": arguments.variants, "bound": arguments.bound, "own_cores": arguments.own_cores}
    return base_sizes.with_changes(**{key: value for key, value in options.items() if value is not None})


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that all contexts end
    try:
        sys.exit(main())
    except BuildError as error:
        show(f"error: {error}")
        sys.exit(2)
