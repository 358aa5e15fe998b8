"""Shell in which a user runs `muster` and other commands."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.harness.access import User
from tests.e2e.harness.controlplane import ControlPlane

PROGRAM = Path(sys.executable).with_name("muster")
TIMEOUT = 120  # seconds


class Shell:
    """Shell of a user. Commands of `muster` use `namespace`, unless they have -n."""

    def __init__(self, cluster: ControlPlane, user: User, namespace: str = "default") -> None:
        self._kubeconfig = str(cluster.kubeconfig(user))
        self._path = f"{PROGRAM.parent}:{cluster.binaries}:{os.environ['PATH']}"
        self._namespace = namespace

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run `muster` with these arguments, and return the completed process."""
        environment = {**os.environ, "KUBECONFIG": self._kubeconfig}
        namespace_flags = () if "-n" in arguments else ("-n", self._namespace)
        command = [str(PROGRAM), *arguments, *namespace_flags]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )

    def output(self, *arguments: str) -> str:
        """Run `muster`, and return its output. Fail if `muster` fails."""
        completed = self(*arguments)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def json(self, *arguments: str) -> Any:
        """Run `muster` with `-o json`, and return the decoded output."""
        return json.loads(self.output(*arguments, "-o", "json"))

    def refuses(self, *arguments: str, status: int = 1) -> str:
        """Run `muster`, and return its error output.

        Fail unless `muster` ends with `status` and no output.
        """
        completed = self(*arguments)
        assert (completed.returncode, completed.stdout) == (status, "")
        return completed.stderr

    def runs(self, line: str) -> str:
        """Run a line of bash with any programs, and return its output. Fail if the line fails."""
        environment = {**os.environ, "KUBECONFIG": self._kubeconfig, "PATH": self._path}
        completed = subprocess.run(
            ["bash", "-euc", line],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout
