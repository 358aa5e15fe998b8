"""Kinds of Kubernetes that Muster reads, served in every supported release that has them."""

import re
from collections import defaultdict

import pytest

from extender.kube import resources
from extender.kube.resources import Resource
from tests.e2e import build
from tests.e2e.harness.policy import WITHOUT_POLICIES

# By the name that RBAC has for a group of the API, where that is not its folder's.
FOLDERS = {"": "core", "authorization.k8s.io": "authorization"}
ELSEWHERE = ("apiextensions.k8s.io",)  # has its own module
READ_KINDS = [each for each in vars(resources).values() if isinstance(each, Resource) and each.plural]


def in_module(resource: Resource) -> bool:
    """Return whether the kind is of Kubernetes itself, not of a CRD."""
    group = resource.group
    return "." not in group or (
        re.fullmatch(r"[a-z]+\.k8s\.io", group) is not None and group not in ELSEWHERE
    )


BUILT_IN = sorted({each for each in READ_KINDS if in_module(each)}, key=str)


def plural(kind: str) -> str:
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("s") else f"{name}s"


def served(kubernetes: str, resource: Resource) -> set[str]:
    """Return the versions in which a release has this kind, whatever its feature gates."""
    module = build.MODULES / kubernetes
    release = build.release(kubernetes).removeprefix("v1.")
    folder = FOLDERS.get(resource.group, resource.group.partition(".")[0])
    found = set()
    for path in (build.sources(f"k8s.io/api@v0.{release}", module) / folder).glob("*/register.go"):
        kinds = re.findall(r"&(\w+)\{\}", path.read_text())
        if resource.plural in map(plural, kinds):
            found.add(path.parent.name)
    return found


@pytest.mark.parametrize("resource", BUILT_IN, ids=lambda each: f"{each.version} {each.plural}")
def test_each_kind_that_is_read_is_served_by_a_supported_release(resource: Resource) -> None:
    version = resource.version.rpartition("/")[2]
    assert any(version in served(kubernetes, resource) for kubernetes in build.supported())


@pytest.mark.parametrize("kubernetes", build.supported())
def test_no_release_has_a_kind_only_in_versions_that_are_not_read(kubernetes: str) -> None:
    """Check only kinds that it reads in any version; before 1.36, a webhook replaces mutating policies."""
    read: dict[tuple[str, str], set[str]] = defaultdict(set)
    for resource in BUILT_IN:
        read[resource.group, resource.plural].add(resource.version.rpartition("/")[2])
    unread = {
        kind: versions
        for resource in BUILT_IN
        if not (kubernetes in WITHOUT_POLICIES and resource.plural.startswith("mutatingadmissionpolic"))
        and (versions := served(kubernetes, resource))
        and not versions & read[kind := (resource.group, resource.plural)]
    }
    assert unread == {}
