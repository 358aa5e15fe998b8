"""Files of the repository in an installed Muster."""

import tomllib
from pathlib import Path

from extender import shipped

ROOT = Path(__file__).parents[1]
FOLDER = Path(shipped.__file__).parent


def test_what_is_shipped_is_what_people_read() -> None:
    assert shipped.EXAMPLE == ROOT / "examples" / "first-gang.yaml"
    folder = ROOT / "manifests"
    assert (folder / "rbac.yaml", folder / "webhooks" / "rbac.yaml") == shipped.RIGHTS
    folders = {folder / name for name in ("crds", "quota", "volcano-jobs")}
    assert {path.parent for path in shipped.CRDS} == folders


def test_a_wheel_takes_every_link_along() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (pattern,) = [
        each for each in project["tool"]["setuptools"]["package-data"]["extender"] if "shipped" in each
    ]
    links = {path for path in FOLDER.iterdir() if path.is_symlink()}
    assert links == set((ROOT / "extender").glob(pattern))


def test_the_image_has_what_the_links_lead_to() -> None:
    wanted = [str(path.resolve().relative_to(ROOT)) for path in FOLDER.iterdir() if path.is_symlink()]
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    copied = (ROOT / "Dockerfile").read_text()
    for path in wanted:
        assert f"!{path}" in allowed
        assert f"COPY {path} " in copied
