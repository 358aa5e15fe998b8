"""Small fault campaign: some random gangs and faults on its own control plane.

With gates, over IPv6 and so on it tries the same promises again, under the same faults: that is for each
night.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import KUBERNETES

SEED, SECONDS = 7, 40
MAX_SECONDS = 450  # when something is wrong, it waits for that to mend itself; else it takes 90 s
CAMPAIGN = str(Path(__file__).parents[1] / "storm" / "campaigns" / "ten-thousand.toml")
MIXES = ("ipv6", "older-etcd", "racks", "midway", "midway-view")


@pytest.mark.timeout(MAX_SECONDS + 30)
@pytest.mark.parametrize(
    "mix",
    [
        pytest.param((), id="gates", marks=pytest.mark.nightly),
        pytest.param(("--view",), id="view"),
        *(
            pytest.param(("--campaign", CAMPAIGN, "--mix", mix), id=mix, marks=pytest.mark.nightly)
            for mix in MIXES
        ),
    ],
)
def test_a_short_campaign_of_faults_violates_nothing(mix: tuple[str, ...]) -> None:
    """Print each violation, the events before it, and the folder of the logs."""
    asked = ["--seconds", str(SECONDS), "--seed", str(SEED), "--kubernetes", KUBERNETES, *mix]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.storm", *asked], capture_output=True, text=True, timeout=MAX_SECONDS
    )
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    assert "no violations" in output
    assert "faults: " in output
