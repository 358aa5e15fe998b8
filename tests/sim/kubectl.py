"""The kubectl that `make control-plane` has built."""

import subprocess
from pathlib import Path

KUBECTLS = sorted(Path.home().glob(".cache/kube-muster/control-plane/*/kubectl"))


class Kubectl:
    def __init__(self, kubeconfig: Path) -> None:
        cache = kubeconfig.with_name("cache")
        self._command = [str(KUBECTLS[-1]), "--kubeconfig", str(kubeconfig), "--cache-dir", str(cache)]

    def __call__(self, *arguments: str) -> str:
        completed = self._run(*arguments)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def refused(self, *arguments: str) -> str:
        """Return the error output of a failing kubectl command."""
        completed = self._run(*arguments)
        assert completed.returncode == 1, completed.stdout
        return completed.stderr

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
