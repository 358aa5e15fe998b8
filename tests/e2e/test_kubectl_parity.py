"""kubectl says of the embedded API server what it says of a real one: the same commands to both, in turn."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.build import folder
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.cleanup import clean
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.embedded import EmbeddedControlPlane

pytestmark = pytest.mark.nightly

PLAYED, NAMESPACE = "1.37", "shell"
COMMANDS = (
    f"create namespace {NAMESPACE}",
    "create deployment web --image=x --replicas=2",
    "create deployment web --image=x",
    "create deployment Web --image=x",
    "get deployments,replicasets,jobs,cronjobs --no-headers -o name",
    "create job once --image=x -- true",
    "create cronjob nightly --image=x --schedule=0_3_*_*_*",
    "create priorityclass shell --value=5",
    "create namespace shell",
    "run one --image=x --port=80 --env=A=b --restart=Never",
    "scale deployment/web --replicas=3",
    "scale deployment/web --replicas=5 --current-replicas=2",
    "scale deployment/web --replicas=4 --current-replicas=3",
    "get deployment/web -o jsonpath={.spec.replicas}{.spec.selector}{.spec.template.metadata.labels}",
    "scale deployment/web --replicas=0",
    "get --raw /apis/apps/v1/namespaces/shell/deployments/none/scale",
    "scale deployment/none --replicas=1",
    "scale job/once --replicas=2",
    "scale cronjob/nightly --replicas=2",
    "scale pod/one --replicas=2",
    "label deployment/web team=a",
    "label deployment/web team=b",
    "annotate deployment/web why=so",
    "set image deployment/web x=y",
    "set image deployment/web z=y",
    'patch deployment/web --type=merge -p {"spec":{"replicas":2}}',
    'patch deployment/web --subresource=scale --type=merge -p {"spec":{"replicas":-1}}',
    'patch deployment/web --subresource=scale --type=merge -p {"metadata":{"name":"x"}}',
    'patch deployment/web --subresource=scale --type=merge -p {"metadata":{"resourceVersion":"1"}}',
    'patch job/once --type=merge -p {"spec":{"suspend":true}}',
    "rollout status deployment/none",
    "rollout pause deployment/web",
    "rollout resume deployment/web",
    "delete deployment web --wait=false",
    "delete job,cronjob --all --wait=false",
    "delete pod one --now --wait=false",
    "delete priorityclass shell",
    "delete deployment web",
)


@pytest.fixture
def kubeconfigs(cluster: ControlPlane, tmp_path: Path) -> Iterator[list[Path]]:
    """Yield the kubeconfigs of the real server and of the embedded one."""
    if cluster.kubernetes != PLAYED:
        pytest.skip(f"the embedded API server plays Kubernetes {PLAYED}")
    with EmbeddedControlPlane(tmp_path) as embedded:
        yield [cluster.kubeconfig(ADMIN), embedded.kubeconfig(ADMIN)]
    clean(cluster.admin, NAMESPACE)
    cluster.admin.exchange("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/shell", None, "")


def printed(kubeconfig: Path, command: str) -> tuple[int, str]:
    """Return the exit status and the output; an underscore in the command is a space within an argument."""
    kubectl = [str(folder(PLAYED) / "kubectl"), "--kubeconfig", str(kubeconfig), "-n", NAMESPACE]
    cache = ["--cache-dir", f"{kubeconfig}.cache"]
    arguments = [each.replace("_", " ") for each in command.split()]
    done = subprocess.run(
        [*kubectl, *cache, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_kubectl_says_the_same_of_both(kubeconfigs: list[Path]) -> None:
    for command in COMMANDS:
        theirs, ours = (printed(kubeconfig, command) for kubeconfig in kubeconfigs)
        assert ours == theirs, command
