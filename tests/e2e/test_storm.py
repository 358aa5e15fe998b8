"""The fault campaign in small: some random gangs and faults on a control plane of its own. With gates it
tries the same promises a second time, under the same faults: that is for each night."""

import subprocess
import sys

import pytest

from tests.e2e.conftest import KUBERNETES

SEED, SECONDS = 7, 40
LONGEST = 450  # when something is wrong, it waits for that to mend itself; else it takes 90 s


@pytest.mark.timeout(LONGEST + 30)
@pytest.mark.parametrize(
    "view",
    [pytest.param((), id="gates", marks=pytest.mark.nightly), pytest.param(("--view",), id="view")],
)
def test_a_short_campaign_of_faults_violates_nothing(view: tuple[str, ...]) -> None:
    """What it prints tells the rest: each violation, what went before it, and where the logs are."""
    asked = ["--seconds", str(SECONDS), "--seed", str(SEED), "--kubernetes", KUBERNETES, *view]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.storm", *asked], capture_output=True, text=True, timeout=LONGEST
    )
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    assert "no violations" in output
    assert "faults: " in output
