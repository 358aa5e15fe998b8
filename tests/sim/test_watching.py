"""Watches, as a person's client sees them and as Muster's reflector lives on them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from extender.api.objects.pods import Pod
from extender.apimachinery.kinds import PODS as POD_KIND
from extender.apimachinery.service import Service
from extender.kube.connection import Connection
from extender.kube.reflector import Reflector, Removed
from extender.kube.resources import PODS as POD_RESOURCE
from extender.sim.apiserver.requests import RequestTarget
from extender.sim.apiserver.routes import Watch
from tests.e2e.harness.waiting import wait_for
from tests.sim.requests import PODS, ask, create, get, overflow_log, patch, pod


class Sink:
    """Sink of a reflector: the existing pods, by name."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}

    def upsert(self, obj: Pod) -> None:
        self.pods[obj.metadata.name] = obj

    def remove(self, gone: Removed) -> None:
        del self.pods[gone.name]


@contextmanager
def reflecting(connection: Connection, **options: Any) -> Iterator[tuple[Reflector[Pod], Sink]]:
    sink = Sink()
    reflector = Reflector(connection, POD_RESOURCE, Pod, sink, **options)
    reflector.start()
    try:
        yield reflector, sink
    finally:
        reflector.stop()


def events(connection: Connection, version: str, count: int, **query: str) -> list[tuple[str, str]]:
    """Return the first events of a watch, and the names of their objects."""
    asked = {"watch": "1", "resourceVersion": version, **query}
    seen: list[tuple[str, str]] = []
    with connection.stream(PODS, asked, read_timeout=30) as lines:
        for line in lines:
            event = json.loads(line)
            seen.append((event["type"], event["object"].get("metadata", {}).get("name", "")))
            if len(seen) == count:
                break
    return seen


def test_a_watch_continues_from_a_version(connection: Connection) -> None:
    version = create(connection, PODS, pod("a"))["metadata"]["resourceVersion"]
    create(connection, PODS, pod("b"))
    patch(connection, f"{PODS}/a", {"metadata": {"labels": {"l": "1"}}})
    ask(connection, "DELETE", f"{PODS}/b")
    seen = events(connection, version, 4)
    assert seen == [("ADDED", "b"), ("MODIFIED", "a"), ("MODIFIED", "b"), ("DELETED", "b")]


def test_a_watch_without_a_version_begins_with_existing_objects(connection: Connection) -> None:
    for name in ("a", "b"):
        create(connection, PODS, pod(name))
    assert events(connection, "0", 2) == [("ADDED", "a"), ("ADDED", "b")]


def test_objects_that_begin_or_cease_to_match_are_added_or_deleted(connection: Connection) -> None:
    version = get(connection, PODS)["metadata"]["resourceVersion"]
    create(connection, PODS, pod("a"))
    for value in ("yes", "no"):
        patch(connection, f"{PODS}/a", {"metadata": {"labels": {"mine": value}}})
    seen = events(connection, version, 2, labelSelector="mine=yes")
    assert seen == [("ADDED", "a"), ("DELETED", "a")]


def test_a_version_that_is_too_old_is_gone(connection: Connection, service: Service) -> None:
    version = create(connection, PODS, pod("a"))["metadata"]["resourceVersion"]
    create(connection, PODS, pod("b"))
    overflow_log(service.store)
    assert events(connection, version, 1) == [("ERROR", "")]


def test_bookmarks_bring_the_version_when_there_are_no_events(service: Service) -> None:
    target, query = RequestTarget(POD_KIND), {"resourceVersion": "1", "allowWatchBookmarks": "true"}
    watch = Watch(service.store, target, query, is_listening=lambda: True, bookmark_period=0.0)
    bookmark = json.loads(next(iter(watch.lines())))
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(service.store.version)


def test_a_watch_ends_in_time_with_a_last_bookmark(connection: Connection) -> None:
    query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "1"}
    with connection.stream(PODS, query, read_timeout=30) as lines:
        (last,) = map(json.loads, lines)
    assert last["type"] == "BOOKMARK"


def test_a_reflector_keeps_in_step(connection: Connection) -> None:
    for number in range(3):
        create(connection, PODS, pod(f"p{number}"))
    with reflecting(connection) as (reflector, sink):
        wait_for(lambda: reflector.is_synced)
        assert sorted(sink.pods) == ["p0", "p1", "p2"]
        ask(connection, "DELETE", f"{PODS}/p0")
        create(connection, PODS, pod("p3"))
        patch(connection, f"{PODS}/p1", {"metadata": {"labels": {"l": "1"}}})
        wait_for(lambda: sorted(sink.pods) == ["p1", "p2", "p3"] and sink.pods["p1"].metadata.labels)
        assert reflector.relist_count == 0


def test_a_reflector_reads_only_objects_that_match_its_selector(connection: Connection) -> None:
    with reflecting(connection, label_selector="mine") as (reflector, sink):
        wait_for(lambda: reflector.is_synced)
        create(connection, PODS, pod("theirs"))
        create(connection, PODS, pod("mine", labels={"mine": "1"}))
        wait_for(lambda: sink.pods)
        assert list(sink.pods) == ["mine"]


def test_a_reflector_lists_again_when_its_version_is_gone(connection: Connection, service: Service) -> None:
    """Between two looks of its watch more happens than the log holds."""
    with reflecting(connection) as (reflector, sink):
        wait_for(lambda: reflector.is_synced)
        with service.store:
            service.create(POD_KIND, "", pod("meanwhile"))
            overflow_log(service.store)
        wait_for(lambda: reflector.relist_count and "meanwhile" in sink.pods)


@pytest.mark.parametrize("path", [PODS, "/api/v1/pods"])
def test_the_namespaces_of_a_viewer_bound_its_page(connection: Connection, path: str) -> None:
    create(connection, "/api/v1/namespaces", {"metadata": {"name": "other"}})
    create(connection, PODS, pod("here"))
    create(connection, "/api/v1/namespaces/other/pods", {**pod(), "metadata": {"name": "there"}})
    seen = {item["metadata"]["name"] for item in get(connection, path)["items"]}
    assert seen == ({"here"} if path == PODS else {"here", "there"})
