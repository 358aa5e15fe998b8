"""The fixtures of tests/e2e, on the embedded cluster, so that its scenarios run here as they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.embedded import EmbeddedStage, embedded_stage
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import Muster


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[EmbeddedStage]:
    with embedded_stage(tmp_path) as new_stage:
        yield new_stage


@pytest.fixture
def muster_user() -> User:
    return ADMIN


@pytest.fixture
def muster_flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    marker = request.node.get_closest_marker("muster_flags")
    return marker.args if marker else ()


@pytest.fixture
def muster(stage: EmbeddedStage, muster_user: User, muster_flags: tuple[str, ...]) -> Muster:
    return stage.start_muster(*muster_flags, user=muster_user)


@pytest.fixture
def proxy(stage: EmbeddedStage) -> FaultProxy:
    return stage.start_fault_proxy()


@pytest.fixture
def muster_behind_proxy(
    stage: EmbeddedStage, proxy: FaultProxy, muster_user: User, muster_flags: tuple[str, ...]
) -> Muster:
    return stage.start_muster(*muster_flags, user=muster_user, server=proxy.server)


@pytest.fixture
def scheduler(stage: EmbeddedStage, muster: Muster) -> Any:
    return stage.start_scheduler("sidecar-gates.yaml", muster=muster.address)


def pytest_configure(config: pytest.Config) -> None:
    for marker in ("gang_deadline", "gaps_allowed", "muster_flags"):
        config.addinivalue_line("markers", f"{marker}: of the end-to-end tests")
