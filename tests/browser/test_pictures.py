"""Pictures of README and docs.

`make browser PICTURES=1` writes them; otherwise they are made and thrown away, which checks that their
subjects still exist.
"""

import os
import time
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import expect

from extender.dashboard.source import ClusterName
from tests.browser.conftest import Open, served
from tests.dashboard.sample import sample_source, with_history

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
PNG = b"\x89PNG"


@pytest.mark.parametrize(
    ("name", "path", "colours", "width", "height"),
    [
        ("jobs", "/", "light", 1280, 800),
        ("why", "/groups/research/llama-70b", "light", 1280, 1120),
        ("queues", "/queues", "dark", 1280, 1040),
        ("nodes", "/nodes", "light", 1280, 660),
        ("history", "/history", "light", 1280, 560),
        ("phone", "/", "light", 390, 760),
    ],
)
def test_pictures_show_what_there_is(
    opened: Open, name: str, path: str, colours: Literal["light", "dark"], width: int, height: int
) -> None:
    source, named = (
        with_history(sample_source(time.time()), time.time()),
        ClusterName("prod-eu", "ann@prod-eu"),
    )
    with served(source, cluster=named) as address:
        page = opened(address + path, width, height, color_scheme=colours)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        picture = page.screenshot()
    assert picture.startswith(PNG)
    reserved = FOLDER / f"dashboard-{name}.png"
    if os.environ.get("MUSTER_PICTURES"):
        reserved.write_bytes(picture)
    assert reserved.exists()
