"""YAML of README, docs/ and examples/: read by `muster simulate`, or in NOT_RUN with the reason.

`muster simulate` reads as `muster run` does.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from extender.cli import main
from tests.pages.fences import PAGES, ROOT, fences
from tests.rows import each_of
from tests.sim.test_workloads import created, pods_of

NOT_RUN = {
    r"(# \S+\n)?apiVersion: kustomize\.config\.k8s\.io/": "an overlay: tests/e2e/test_pages.py applies it",
    r"apiVersion: config\.kube-muster\.io/": "the configuration of muster serve, generated from it",
    r"apiVersion: (apiserver\.config\.k8s\.io/|v1\nkind: Config\n)": "for others: tests/e2e/test_use.py",
    r"apiVersion: scheduling\.sigs\.k8s\.io/": "its queues: tests/domain/test_quotas.py",
    r"apiVersion: rbac\.authorization\.k8s\.io/": "rights only: tests/e2e/test_webhook_rights.py has them",
}


class Text(NamedTuple):
    """YAML of a page or file; `where`: the page and the number of its YAML, or the file."""

    where: str
    text: str

    def __str__(self) -> str:
        return self.where


def texts() -> Iterator[Text]:
    for page in PAGES:
        found = (text for language, text in fences(page) if language == "yaml")
        for number, text in enumerate(found, 1):
            yield Text(f"{page.relative_to(ROOT)}#{number}", text)
    for file in sorted((ROOT / "examples").rglob("*.y*ml")):
        yield Text(str(file.relative_to(ROOT)), file.read_text())


def why_not(text: str) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, text)), None)


RUN = [text for text in texts() if why_not(text.text) is None]


@each_of(*RUN)
def test_manifests_of_pages_and_examples_can_be_created(given: Text, *, tmp_path: Path) -> None:
    """Check that each object with pods starts or waits with a reason."""
    file = tmp_path / "shown.yaml"
    file.write_text(given.text)
    if not pods_of(created(file, create_namespaces=True)[0]):
        return
    done = CliRunner().invoke(main, ["simulate", "-f", str(file), "--create-namespaces", "-o", "json"])
    assert done.exit_code in (0, 3), done.output
    report = json.loads(done.stdout)
    assert report["pods"] > 0
    assert bool(report["neverStarted"]) == (done.exit_code == 3)
    assert all(each["reason"] for each in report["neverStarted"])


def test_each_exception_matches_a_manifest() -> None:
    for pattern in NOT_RUN:
        assert any(re.match(pattern, text.text) for text in texts()), pattern


def test_the_gang_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    (gang,) = (each.text for each in RUN if each.where.startswith("README.md"))
    (tmp_path / "fit.yaml").write_text(gang)
    done = CliRunner().invoke(main, ["simulate", "-f", str(tmp_path / "fit.yaml"), "-o", "json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["groups"], report["started"], report["pods"]) == (1, 1, 3)
