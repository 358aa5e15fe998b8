"""Register of the tests that run the commands of the pages. The first matching entry of a command applies.

tests/pages/test_commands.py fails if a command has no entry, or if an entry matches no command.
"""

import re
from enum import StrEnum
from typing import NamedTuple

from tests.pages.fences import Command


class Way(StrEnum):
    """Way in which tests run a command."""

    ALONE = "in an empty folder that has the examples"
    SIMULATED = "its files in the nodes of its flags, by `muster simulate`, with the same result"
    SAMPLE = "against the embedded API server, with the queues and groups of tests/pages/sample.py"
    TUTORIAL = "against the cluster that the tutorial starts: tests/pages/test_tutorial.py"
    SITE = "against the installation of tests/cli/installation.py"
    CLUSTER = "against a real control plane: tests/e2e/test_pages.py"
    ELSEWHERE = "not by these tests"


class Entry(NamedTuple):
    """Entry. `why`: the reason why a command is not run, or the test that runs it. `page`: the only page."""

    pattern: str
    way: Way
    why: str = ""
    page: str = ""

    def is_for(self, command: Command) -> bool:
        is_on_page = self.page in ("", command.page)
        return is_on_page and re.fullmatch(self.pattern, command.text, re.DOTALL) is not None


TUTORIAL = "docs/tutorials/first-steps.md"
REGISTER = (
    Entry(r"muster run .* --speed 1|muster (why|queue) .*", Way.TUTORIAL, page=TUTORIAL),
    Entry(r"make run|export PATH=.*", Way.ELSEWHERE, "they prepare the reader's shell", page=TUTORIAL),
    Entry(r"muster why .* --what-if .*", Way.ELSEWHERE, "needs capacity on nodes: tests/cli/test_what_if.py"),
    Entry(r"muster plan .*", Way.ELSEWHERE, "needs capacity on nodes: tests/cli/test_plan.py"),
    Entry(r"muster (dump|replay) .*", Way.ELSEWHERE, "needs a running Muster: tests/cli/test_dump.py"),
    Entry(r"muster dashboard( .*)?", Way.ELSEWHERE, "runs until Ctrl-C: tests/cli/test_dashboard.py"),
    Entry(r"muster report .*", Way.ELSEWHERE, "needs a running Muster: tests/cli/test_report.py"),
    Entry(r"openssl req .*", Way.CLUSTER),  # its files are used in a Secret
    Entry(r"(kubectl )?muster (why|job|queue|q|podgroup|pg|namespace) .*", Way.SAMPLE),
    Entry(
        r"muster (migrate kueue|simulate) .*",
        Way.ELSEWHERE,
        "needs objects of Kueue: tests/cli/test_migrate.py and tests/sim_virtual/test_command.py",
        page="docs/how-to/kueue.md",
    ),
    Entry(r"muster simulate .*", Way.ALONE),
    Entry(r"muster run .*--until-settled.*", Way.ALONE),
    Entry(r"muster run", Way.ELSEWHERE, "without a terminal: tests/cli/test_run.py"),
    Entry(r"muster run .* --racks .*", Way.ELSEWHERE, "tests/cli/test_run.py runs its file on racks"),
    Entry(r"muster run .*", Way.SIMULATED),
    Entry(r"muster certificates .*", Way.CLUSTER),  # its files are used in a Secret
    Entry(r"source <\(muster completion bash\)", Way.ALONE),
    Entry(
        r"kubectl create token ACCOUNT",
        Way.ELSEWHERE,
        "the account is the reader's: tests/e2e/test_dashboard.py",
    ),
    Entry(r"kubectl .*port-forward .*", Way.ELSEWHERE, "needs a kubelet"),
    Entry(r"curl -s 127\.0\.0\.1:8283/debug/\S*", Way.ELSEWHERE, "tests/web/test_debug.py asks each page"),
    Entry(
        r"helm (install|upgrade|rollback) muster .*",
        Way.ELSEWHERE,
        "tests/e2e/test_uninstall.py and test_moving.py run them with a real Helm",
    ),
    Entry(r"kubectl annotate job .*/may-use=.*", Way.ELSEWHERE, "tests/e2e/test_use.py writes such notes"),
    Entry(r"kubectl .*volcano-system.*", Way.ELSEWHERE, "needs Volcano: tests/e2e/test_moving.py"),
    Entry(
        r"git tag .*|make (publish|check-release) .*|gh release .*|\.venv/bin/uv publish .*",
        Way.ELSEWHERE,
        "publishes, to a local registry in tests/e2e/test_release.py",
        page="docs/contributing/releasing.md",
    ),
    Entry(r"kubectl apply -f https://.*/muster-.*", Way.ELSEWHERE, "a release: tests/e2e/test_release.py"),
    Entry(r"make (image )?release IMAGE=.*", Way.ELSEWHERE, "tests/e2e/test_release.py; pages have them"),
    Entry(r"kubectl .*", Way.CLUSTER),
)


def entry_of(command: Command) -> Entry | None:
    return next((entry for entry in REGISTER if entry.is_for(command)), None)


def way_of(command: Command) -> Way | None:
    entry = entry_of(command)
    return entry.way if entry else None
