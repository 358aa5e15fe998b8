"""Fixtures of the e2e tests: one control plane for each worker of pytest, and an empty cluster for each test.

`stage` provides a namespace, kubelets and an observer. `muster` and `scheduler` start Muster and its
scheduler on the stage. The observer checks every test that has passed, even if the test does not use the
observer.
"""

import itertools
import os
import subprocess
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e import build
from tests.e2e.harness import manifests, objects, volcano_installed, volcano_jobs
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.cleanup import clean
from tests.e2e.harness.client import Client, refusal
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.jobset import JOB_SET
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.lws import LWS
from tests.e2e.harness.muster import PROGRAM, Muster
from tests.e2e.harness.objects import namespace
from tests.e2e.harness.observer import GANG_DEADLINE, Observer
from tests.e2e.harness.process import STARTED
from tests.e2e.harness.resources import NAMESPACES, POD_GROUPS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import VIEW, Stage
from tests.e2e.harness.waiting import wait_for

KUBERNETES = os.environ.get("MUSTER_E2E_KUBERNETES", build.DEFAULT)
LONGEST_TEST = 300  # seconds
HAS_PASSED = pytest.StashKey[bool]()
NUMBERS = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "nightly: tests of the harness, comparisons of the embedded server with a real one, and repeated"
        " scenarios: make nightly",
    )
    config.addinivalue_line("markers", "alone: this test needs the whole machine, and runs after the others")
    config.addinivalue_line("markers", "muster_flags(*flags): further flags of `muster serve`")
    config.addinivalue_line(
        "markers", "gang_deadline(seconds): how long a gang may be incomplete in this test"
    )
    config.addinivalue_line(
        "markers",
        "view: the scheduler next to Muster uses the scheduler proxy (MUSTER_E2E_VIEW=1: in all tests)",
    )
    config.addinivalue_line(
        "markers",
        "gates: this test has a scheduler without the scheduler proxy; skipped with MUSTER_E2E_VIEW=1",
    )
    config.addinivalue_line("markers", "volcano: this test runs Volcano's own scheduler and controllers")
    config.addinivalue_line("markers", "jobset: this test runs the real JobSet controller")
    config.addinivalue_line("markers", "lws: this test runs the real controller of LeaderWorkerSets")
    config.addinivalue_line(
        "markers", "gaps_allowed: this test makes the API server forget events, so the observer may miss some"
    )


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Set a longer timeout than for unit tests, and skip tests that do not apply with MUSTER_E2E_VIEW."""
    for item in items:
        if VIEW and item.get_closest_marker("gates") is not None:
            item.add_marker(pytest.mark.skip(reason="about a scheduler that does not read through Muster"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_TEST))


def pytest_runtestloop(session: pytest.Session) -> None:
    """Build the binaries before the first test, because a build takes longer than the timeout of a test."""
    if session.items and not session.config.option.collectonly:
        try:
            build.folder(KUBERNETES)
            if any(item.get_closest_marker("volcano") for item in session.items):
                volcano_installed.programs()
            for operator in (JOB_SET, LWS):
                if any(item.get_closest_marker(operator.name) for item in session.items):
                    operator.program()
        except build.BuildError as error:
            pytest.exit(f"cannot be built: {error}", returncode=2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of running programs to the report of a failed test."""
    report = yield
    if report.when == "call":
        item.stash[HAS_PASSED] = report.passed
    if report.failed:
        report.sections.extend((f"log of {process.name}", process.tail()) for process in STARTED)
    return report


@pytest.fixture(scope="session")
def muster_user() -> User:
    """Return Muster's service account in the manifests, so that Muster has the RBAC of the manifests."""
    return next(iter(manifests.service_accounts()), ADMIN)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Yield a control plane with the CRDs and the RBAC of the manifests.

    Policies are not applied; a test applies them by `stage.policy`.
    """
    with ControlPlane(kubernetes=KUBERNETES, users=manifests.service_accounts()) as control_plane:
        manifests.apply(control_plane.admin, *manifests.INSTALLED)
        yield control_plane
        control_plane.keep_logs = request.session.testsfailed > 0
    if control_plane.keep_logs:
        print(f"\nlogs kept in {control_plane.folder}")  # noqa: T201


@pytest.fixture
def stage(cluster: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Yield an empty cluster with simulated kubelets and the observer.

    After the test has passed, the observer checks all events.
    """
    name = f"test-{next(NUMBERS)}"
    cluster.admin.create(NAMESPACES, namespace(name))
    marker = request.node.get_closest_marker("gang_deadline")
    deadline = marker.args[0] if marker else GANG_DEADLINE
    try:
        with Observer(cluster.admin, deadline) as observer, Kubelet(cluster.admin) as kubelet:
            new_stage = Stage(cluster, name, kubelet, observer)
            with new_stage.started:
                yield new_stage
            if request.node.stash.get(HAS_PASSED, False):
                gaps_allowed = request.node.get_closest_marker("gaps_allowed") is not None
                observer.assert_clean(gaps_allowed=gaps_allowed, namespace=name)
    finally:
        clean(cluster.admin, name)


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    """Return a folder with the folders `muster` and `scheduler` that `muster certificates` writes."""
    out = tmp_path / "tls"
    subprocess.run([PROGRAM, "certificates", "--out", out], check=True, capture_output=True, timeout=60)
    return out


@pytest.fixture
def muster_flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the flags of `muster serve` that the test's marker adds."""
    marker = request.node.get_closest_marker("muster_flags")
    return marker.args if marker else ()


@pytest.fixture
def view(request: pytest.FixtureRequest) -> bool:
    """Return whether Muster has a scheduler proxy that the scheduler uses."""
    return VIEW or request.node.get_closest_marker("view") is not None


@pytest.fixture
def muster(stage: Stage, muster_user: User, muster_flags: tuple[str, ...], view: bool) -> Muster:
    """Return a running `muster serve` with the settings of the sidecar install."""
    return stage.start_muster(*muster_flags, user=muster_user, view=view)


@pytest.fixture
def proxy(stage: Stage) -> FaultProxy:
    """Return a proxy in front of the API server that applies the faults of a test."""
    return stage.start_fault_proxy()


@pytest.fixture
def muster_behind_proxy(
    stage: Stage, proxy: FaultProxy, muster_user: User, muster_flags: tuple[str, ...], view: bool
) -> Muster:
    """Return a running `muster serve` that reaches the API server through the proxy."""
    return stage.start_muster(*muster_flags, user=muster_user, server=proxy.server, view=view)


@pytest.fixture
def scheduler(stage: Stage, muster: Muster, muster_user: User) -> KubeScheduler:
    """Return the scheduler of the sidecar install. Muster is its extender; both use the same account."""
    return stage.start_sidecar(muster, user=muster_user)


@pytest.fixture(scope="module")
def job_rights(cluster: ControlPlane) -> Iterator[None]:
    """Grant Muster its rights on Jobs. The rights must exist before Muster starts."""
    with manifests.applied(cluster.admin, "jobs/batch/rbac.yaml"):
        yield


@pytest.fixture(scope="module")
def volcano_kinds(cluster: ControlPlane) -> Iterator[None]:
    """Install the CRDs of Volcano Jobs and Muster's rights on them. Both must exist before Muster starts."""
    with volcano_jobs.installed(cluster.admin):
        yield


@pytest.fixture(scope="module")
def no_scheduler_rights(cluster: ControlPlane) -> Iterator[None]:
    """Remove the scheduler's rights from the service account that the scheduler shares with Muster."""
    scheduler_roles = list(manifests.documents("sidecar/rbac-*.yaml"))
    manifests.remove(cluster.admin, scheduler_roles)
    yield
    manifests.install(cluster.admin, scheduler_roles)


@pytest.fixture
def tenant(stage: Stage) -> Iterator[Client]:
    """Yield a client of a user who has all rights in the namespace of the test, and no rights elsewhere."""
    all_rights = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "all", "namespace": stage.namespace},
        "rules": [all_rights],
    }
    binding = objects.binding("all", "mallory", namespace=stage.namespace, role_kind="Role")
    for obj in (role, binding):
        manifests.apply_one(stage.api, obj)
    with _acting_as(stage, "mallory") as client:
        yield client


@pytest.fixture
def editor(stage: Stage) -> Iterator[Client]:
    """Yield a client of a user who has the role edit in the test's namespace, and no rights elsewhere."""
    stage.grant_edit("eve")
    with _acting_as(stage, "eve") as client:
        yield client


@contextmanager
def _acting_as(stage: Stage, user: str) -> Iterator[Client]:
    """Yield a client that impersonates a user, once the user may create PodGroups."""
    sample = objects.pod_group("sample", namespace=stage.namespace, min_member=1)
    with stage.api.acting_as(user) as client:
        wait_for(lambda: not refusal(lambda: client.dry_run(POD_GROUPS, sample)), what="RBAC in force")
        yield client
