"""What a release renders, as far as no kustomize is needed; tests/e2e/test_release.py has the rest."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools import release

ROOT = Path(__file__).parents[1]
DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("registry.example/kube-muster:0.1.0", ("registry.example/kube-muster", "0.1.0", "")),
        ("localhost:5000/kube-muster:0.1.0", ("localhost:5000/kube-muster", "0.1.0", "")),
        (f"a/b@{DIGEST}", ("a/b", "", DIGEST)),
        (f"a/b:1@{DIGEST}", ("a/b", "1", DIGEST)),
    ],
)
def test_names_of_images(text: str, expected: tuple[str, str, str]) -> None:
    assert release.image(text) == expected


@pytest.mark.parametrize(
    "text", ["", "kube-muster", "localhost:5000/kube-muster", "a:b:c", "a b:1", "a@sha256:12", "a:1\n"]
)
def test_a_name_that_is_none_or_could_be_any_image_is_refused(text: str) -> None:
    with pytest.raises(release.Unusable, match="allowed: NAME:TAG or NAME@sha256"):
        release.image(text)


def test_each_install_has_its_files() -> None:
    """One for each kind of API server; install/leaving is for after Muster, and has no image of ours."""
    folders = {path.parent.name for path in (ROOT / "install").glob("*/kustomization.yaml")} - {"leaving"}
    rendered = [(each.install, each.kubernetes) for each in release.MANIFESTS]
    kinds = (release.CURRENT, release.BEFORE)
    assert sorted(rendered) == sorted((install, kind) for install in folders for kind in kinds)


def test_an_overlay_names_image_and_components() -> None:
    before = [each for each in release.MANIFESTS if each.kubernetes == release.BEFORE]
    made = [json.loads(release.overlay(each, release.image(f"a/b:1@{DIGEST}"), "../x")) for each in before]
    assert [(each["resources"], each["components"]) for each in made] == [
        (["../x/install/sidecar"], []),  # no pod gets a gate there
        (["../x/install/default-scheduler"], ["../x/manifests/older-kubernetes"]),
    ]
    assert all(
        each["images"][0] == {"name": "kube-muster", "newName": "a/b", "digest": DIGEST} for each in made
    )
    assert made[0]["images"][1]["newTag"] == release.OLDEST_SCHEDULER


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--image: got ''"),
        (("--image=a:1", "--kubectl=not-there"), "--kubectl: got not-there"),
        (("--image=a:1", "--kubectl=false"), "false kustomize"),
    ],
    ids=["no image", "no kubectl", "kustomize fails"],
)
def test_what_it_cannot_do_is_said_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    command = [sys.executable, "-m", "tools.release", f"--out={tmp_path / 'dist'}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert not (tmp_path / "dist").exists()
