"""Wrong use of `make publish`, before anything is built; tests/e2e/test_release.py publishes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BASE = f"--base=python@sha256:{'0' * 64}"
ADDRESSES = ("--registry=127.0.0.1:1", "--url=http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--registry=a b",), "--registry: invalid value 'a b': must be HOST[:PORT][/PATH]"),
        (("--base=python:3.13",), "--base: invalid value 'python:3.13': must have a digest"),
        ((BASE, "--out=full"), "full': must be a new or empty folder"),
        ((BASE, "--out=full/old.whl"), "old.whl': must be a new or empty folder"),
        (
            (BASE, "--kubectl=not-there"),
            "--kubectl: invalid value 'not-there': must be a program on PATH; kustomize",
        ),
        (
            (BASE, "--helm=not-there"),
            "--helm: invalid value 'not-there': must be a program on PATH; it pushes",
        ),
        ((BASE, "--builder=not-there"), "no engine to build with (not-there: not found on PATH)"),
    ],
    ids=["registry", "base", "out", "out is a file", "kubectl", "helm", "builder"],
)
def test_wrong_use_is_named_before_anything_is_built(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    for name in ("kubectl", "helm"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old.whl").touch()
    given = (argument.replace("=full", f"={tmp_path}/full") for argument in arguments)
    command = [sys.executable, "-m", "tools.publish", *ADDRESSES, f"--out={tmp_path}/dist", *given]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert not (tmp_path / "dist").exists()
