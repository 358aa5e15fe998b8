"""The same commands with Volcano's scheduler and controllers at work, and then with Muster."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import manifests, volcano_installed
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.queue_table import Row, rows
from tests.e2e.harness.resources import COMMANDS, POD_GROUPS, QUEUES
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano import Vcctl
from tests.e2e.harness.volcano_installed import Volcano
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.volcano


@pytest.fixture(scope="module")
def cluster(muster_user: User) -> Iterator[ControlPlane]:
    """Yield a control plane for this test alone: a Volcano changes all of it."""
    with ControlPlane(kubernetes=KUBERNETES, users=[muster_user, *volcano_installed.users()]) as started:
        started.start_controller_manager()
        yield started


@pytest.fixture
def vcctl(stage: Stage) -> Vcctl:
    return Vcctl(stage.cluster, ADMIN)


class Life:
    """The same commands for a queue, and the output of `vcctl` after each, for both controllers."""

    def __init__(self, stage: Stage, vcctl: Vcctl, queue: str) -> None:
        self._stage, self._vcctl, self._queue = stage, vcctl, queue
        self.seen: list[Row] = []

    def lead(self) -> list[Row]:
        stage, queue = self._stage, self._queue
        self._vcctl("queue", "create", f"--name={queue}", "--weight=3")
        self._see(State="Open")
        self._operate("update", "--weight=5")
        self._see(Weight="5")
        for action, state in (("close", "Closed"), ("close", "Closed"), ("open", "Open")):
            self._operate(action)
            self._see(State=state)
        runs = self._gang("runs", 2)
        stage.wait_phase(runs)
        self._see(Running="1")
        self._gang("waits", 4)
        self._see(Running="1", Pending="1")
        stage.finish(runs)
        self._see(Completed="1", Pending="1")
        self._operate("close")
        self._see(State="Closing")
        for group in ("runs", "waits"):
            stage.api.delete(POD_GROUPS, f"{queue}-{group}", stage.namespace)
        self._see(State="Closed", Completed="0", Pending="0")
        self._vcctl("queue", "delete", f"--name={queue}")
        assert stage.api.find(QUEUES, queue) is None
        wait_for(lambda: not stage.api.items(COMMANDS, "default"), what="no Command is left")
        return self.seen

    def _gang(self, name: str, size: int) -> list[str]:
        """Create a gang with the minResources that operators write: Volcano admits any group without them."""
        name, capacity = f"{self._queue}-{name}", {"cpu": str(size)}
        self._stage.group(name, size, queue=self._queue, minResources=capacity)
        return self._stage.pods(name, size, group=name, scheduler="volcano")

    def _operate(self, action: str, *more: str) -> None:
        self._vcctl("queue", "operate", f"--name={self._queue}", f"--action={action}", *more)

    def _see(self, **cells: str) -> None:
        """Wait until the row has these cells, and record all of it."""

        def shown() -> Row | None:
            (row,) = rows(self._vcctl("queue", "get", f"--name={self._queue}"))
            return row if cells.items() <= row.items() else None

        found = wait_for(shown, what=f"vcctl shows {self._queue} {cells}")
        assert found is not None
        self.seen.append({**found, "Name": "", "Parent": ""})


def test_vcctl_shows_the_same_of_either(stage: Stage, vcctl: Vcctl, muster_user: User) -> None:
    """Ignore the parent: Volcano writes `root` into a queue that names none."""
    stage.nodes(2, cpu="1")
    with Volcano(stage.cluster):
        with_volcano = Life(stage, vcctl, "first").lead()
    manifests.apply(stage.api, "rbac.yaml", "sidecar/rbac-*.yaml")
    muster = stage.start_muster(user=muster_user)
    stage.start_sidecar(muster, user=muster_user)
    wait_for(lambda: "no scheduler" in muster.readyz(), what="Volcano is gone")
    assert Life(stage, vcctl, "second").lead() == with_volcano
