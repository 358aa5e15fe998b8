"""Release as rendered without kustomize; tests/e2e/test_release.py has the rest."""

import io
import json
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from extender import __version__
from tests.rows import each_of
from tools import packages, release
from tools.addresses import Unusable

ROOT = Path(__file__).parents[1]
DIGEST = f"sha256:{'0' * 64}"


@each_of(
    ("registry.example/kube-muster:0.1.0", ("registry.example/kube-muster", "0.1.0", "")),
    ("localhost:5000/kube-muster:0.1.0", ("localhost:5000/kube-muster", "0.1.0", "")),
    (f"a/b@{DIGEST}", ("a/b", "", DIGEST)),
    (f"a/b:1@{DIGEST}", ("a/b", "1", DIGEST)),
)
def test_names_of_images(text: str, expected: tuple[str, str, str]) -> None:
    assert release.image(text) == expected


@each_of(
    *("", "kube-muster", "localhost:5000/kube-muster", "a:b:c", "a b:1", "a@sha256:12", "a:1\n"),
    *(
        "a//b:1",
        "/a:1",
        "a/:1",
        "x.y/Kube-Muster:1",
        "a..b:1",
        "-a:1",
        "a-:1",
        "x.y:123456/a:1",
        f"{'a' * 256}:1",
    ),
)
def test_a_name_that_is_none_or_could_be_any_image_is_refused(text: str) -> None:
    with pytest.raises(Unusable, match="must be NAME:TAG or NAME@sha256"):
        release.image(text)


def test_the_scheduler_of_the_manifests_is_not_newer_than_any_cluster() -> None:
    """It is of the oldest release for which they are."""
    text = (ROOT / "manifests" / "sidecar" / "deployment.yaml").read_text()
    assert f"image: registry.k8s.io/kube-scheduler:{release.SCHEDULER}\n" in text
    assert release.CURRENT.startswith(release.SCHEDULER.removeprefix("v").rpartition(".")[0])


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
        (["../x/install/sidecar"], ["../x/manifests/older-kubernetes"]),
        (["../x/install/default-scheduler"], ["../x/manifests/older-kubernetes"]),
    ]
    assert all(
        each["images"][0] == {"name": "kube-muster", "newName": "a/b", "digest": DIGEST} for each in made
    )
    assert made[0]["images"][1]["newTag"] == release.OLDEST_SCHEDULER


def unpacked(archive: bytes) -> dict[str, tuple[bytes, int]]:
    """Return content and mode by name."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {
            each.name: (found.read(), each.mode)
            for each in opened
            if (found := opened.extractfile(each)) is not None
        }


def test_the_chart_is_that_of_the_repository_with_the_image_of_the_release() -> None:
    folder = ROOT / "install" / "chart"
    found = unpacked(packages.chart("registry.example/m", "1"))
    there = {f"muster/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
    assert found.keys() == there.keys()
    values = yaml.safe_load(found.pop("muster/values.yaml")[0])
    named = {"repository": "registry.example/m", "tag": "1", "pullPolicy": "IfNotPresent"}
    assert values.pop("image") == named
    before = yaml.safe_load((folder / "values.yaml").read_text())
    assert values == {key: each for key, each in before.items() if key != "image"}
    assert all(content == there[name].read_bytes() for name, (content, _) in found.items())
    assert packages.chart("a", "1") == packages.chart("a", "1")


@each_of(("2", DIGEST, f"2@{DIGEST}"), ("", DIGEST, f"{__version__}@{DIGEST}"))
def test_the_tag_of_the_chart_has_the_digest(tag: str, digest: str, expected: str) -> None:
    """It has a tag as well: templates write a colon in front of it."""
    values = yaml.safe_load(unpacked(packages.chart("a", tag, digest))["muster/values.yaml"][0])
    assert values["image"]["tag"] == expected


def test_krew_unpacks_the_plugin_as_a_program() -> None:
    files = packages.plugin("https://x.example/v0.1.0/")
    manifest = yaml.safe_load(files[packages.KREW])
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "muster")
    (platform,) = manifest["spec"]["platforms"]
    there = unpacked(files[packages.PLUGIN])
    assert {each["from"] for each in platform["files"]} == there.keys()
    assert there[platform["bin"]][1] == 0o755


@pytest.mark.parametrize(
    ("program", "typed"),
    [
        ("uvx", f"--from kube-muster=={__version__} kubectl-muster why pod/x y"),
        ("pipx", f"run --spec kube-muster=={__version__} kubectl-muster why pod/x y"),
        ("", ""),
    ],
)
def test_the_plugin_runs_the_package_of_its_version(tmp_path: Path, program: str, typed: str) -> None:
    script = tmp_path / "kubectl-muster"
    script.write_bytes(unpacked(packages.plugin("x")[packages.PLUGIN])["kubectl-muster"][0])
    if program:
        (tmp_path / program).write_text('#!/bin/sh\necho "$@"\n')
        (tmp_path / program).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", script, "why", "pod/x", "y"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == ((0, typed) if program else (127, ""))
    assert ("needs uv or pipx" in done.stderr) is not bool(program)


def test_the_package_has_a_script_of_its_name() -> None:
    """Name the script so that `uvx kube-muster` needs no more than that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"][project["name"]] == project["scripts"]["muster"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--image: invalid value ''"),
        (("--image=a:1", "--url=a.b/c"), "--url: invalid value 'a.b/c': must be http[s]://HOST"),
        (("--image=a:1", "--kubectl=not-there"), "--kubectl: invalid value 'not-there'"),
        (("--image=a:1", "--kubectl=false"), "false kustomize"),
        (("--image=a:1", "--kubectl=/bin/true"), "'/bin/true': must be a kubectl"),
    ],
    ids=["no image", "no URL", "no kubectl", "kustomize fails", "kustomize prints nothing"],
)
def test_what_it_cannot_do_is_said_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    command = [sys.executable, "-m", "tools.release", f"--out={tmp_path / 'dist'}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert not (tmp_path / "dist").exists()


def test_files_of_an_earlier_release_are_removed(tmp_path: Path) -> None:
    earlier = {**packages.plugin("https://x.example"), "muster-0.0.1.tgz": b"", "muster-sidecar.yaml": b""}
    release.write(tmp_path, earlier)
    (tmp_path / "notes.md").touch()
    with (tmp_path / "SHA256SUMS").open("a") as sums:
        sums.write("0  ../notes.md\n0  ..\n0  \n\n")
    release.write(tmp_path, {"muster-sidecar.yaml": b"now"})
    assert {path.name for path in tmp_path.iterdir()} == {"muster-sidecar.yaml", "SHA256SUMS", "notes.md"}
