"""The pages as a browser gets them, without one: escaped, in parts, searched, and made once."""

import gc
import hashlib
import json
import re
import time
import tracemalloc
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from flask.testing import FlaskClient
from msgspec.structs import replace

import extender.dashboard
from extender.api.summaries import EventSummary, MemberSummary, QueueSummary, ShareSummary, WaitSummary
from extender.api.units import timestamp_at
from extender.dashboard.app import create_dashboard_app
from extender.dashboard.job_pages import JobIndex, merge_events
from extender.dashboard.source import ClusterName
from extender.dashboard.texts import sentence
from extender.domain.explain.history import Period, Report
from extender.domain.model.reasons import Reason
from tests.clock import Clock
from tests.dashboard.sample import (
    HOSTILE_TEXT,
    SampleSource,
    crowd,
    past,
    sample_source,
    spoilt,
    with_history,
)
from tests.dashboard.standins import SomeViewer
from tests.rows import each_of

STATIC = Path(extender.dashboard.__file__).parent / "static"
GROUP = "/groups/research/llama-70b"
OWNED_GROUP = "podgroup-9f37b5ef-f040-4403-a9c5-8a04c6a06883"  # of job/backfill-q3
SCREENS = (
    "/",
    "/history",
    "/namespaces/research",
    GROUP,
    "/queues",
    "/queues/language",
    "/nodes",
    "/nodes?group=research/vit-pretrain",
    "/local-queues",
    "/namespaces/product/job/backfill-q3",
)
NOW = time.time()
FEW = {("list", "podgroups", each) for each in ("", "product", "students")}


def browser(source: SampleSource, viewer: SomeViewer | None = None) -> FlaskClient:
    viewer = viewer or SomeViewer()
    return create_dashboard_app(source, lambda _: viewer, history=past, clock=lambda: NOW).test_client()


def text(page: str) -> str:
    """Return the readable text of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@each_of(*SCREENS)
def test_every_screen_is_well_formed_and_without_inline_scripts_styles_or_foreign_addresses(
    path: str,
) -> None:
    page = browser(sample_source(NOW)).get(path).text
    found = Tags()
    found.feed(page)
    assert found.open == [], "not closed"
    assert found.ids == sorted(set(found.ids), key=found.ids.index), "an id twice"
    assert not [name for name, _ in found.attributes if name == "style" or name.startswith("on")]
    assert all(
        value.startswith(("/", "#", "?"))
        for name, value in found.attributes
        if name in ("href", "src", "action")
    )
    assert "<style" not in page
    assert re.findall(r"<script(?![^>]* src=)", page) == []


class Tags(HTMLParser):
    """Parser that rejects a tag that is closed without having been opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in ("meta", "link", "img", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_job_page_has_the_reason_with_its_numbers() -> None:
    page = text(browser(sample_source(NOW)).get(GROUP).text)
    for words in (
        f"NoRoom {sentence(Reason.NO_ROOM.meaning)}",
        "Position 1 of 4",
        "Expected start in 3",
        "By how long groups like those that end before it ran.",
        "It starts when research/vit-pretrain has ended",
        "kubectl -n research patch podgroup llama-70b",
        "research/moe-8x7b late for",
        "And 2 more.",
        "A start was undone: node h100-004 became unready.",
        "llama-70b-7",
    ):
        assert words in page


@each_of(
    ("it starts once team/a ends", "It starts once team/a ends."),
    ("nvidia.com/gpu: 8 needed", "nvidia.com/gpu: 8 needed."),
    ("team/a of queue q has no known end.", "team/a of queue q has no known end."),
)
def test_a_sentence_starts_large_unless_a_name_is_in_front(text: str, shown: str) -> None:
    assert sentence(text) == shown


def test_an_event_of_many_pods_at_once_is_shown_once() -> None:
    def event(second: int, reason: str) -> EventSummary:
        return EventSummary(f"2026-01-01T00:00:{second:02}Z", reason, "")

    events = [
        event(1, "NoRoom"),
        event(2, "NoRoom"),
        event(3, "Scheduled"),
        event(4, "NoRoom"),
        event(30, "NoRoom"),
    ]
    reported = [(event.event.at[-3:-1], event.event.reason, event.more) for event in merge_events(events)]
    assert reported == [("01", "NoRoom", 1), ("03", "Scheduled", 0), ("04", "NoRoom", 0), ("30", "NoRoom", 0)]


def test_a_group_that_stands_for_a_job_has_the_name_of_the_job() -> None:
    client = browser(sample_source(NOW))
    for path in ("/", "/queues/nightly"):
        page = client.get(path).text
        assert "job/backfill-q3" in text(page)
        assert "podgroup-9f37b5ef" not in text(page)
        assert '"/namespaces/product/job/backfill-q3"' in page
    page = client.get("/namespaces/product/job/backfill-q3").text
    assert "<title>job/backfill-q3 · Muster</title>" in page
    assert "/namespaces/product/job/backfill-q3/hold" in page
    assert "/priority" not in page, "it is that of the job"


def test_the_former_address_of_a_group_leads_to_that_of_its_owner() -> None:
    source = sample_source(NOW)
    client = browser(source)
    answer = client.get(f"/groups/product/{OWNED_GROUP}?page=2")
    assert answer.location == "/namespaces/product/job/backfill-q3?page=2"
    [old] = (group for group in source.seen.groups if group.name == OWNED_GROUP)
    newer = replace(old, name="podgroup-of-the-next", created=timestamp_at(NOW))
    source.put(groups=[*source.seen.groups, newer])
    assert client.get(f"/groups/product/{OWNED_GROUP}").status_code == 200, "another job has its name"
    assert client.get("/groups/product/podgroup-of-the-next").status_code == 302
    few = SomeViewer(refused={("list", "podgroups", each) for each in ("", "product")})
    for path in (f"/groups/product/{OWNED_GROUP}", "/namespaces/product/job/backfill-q3"):
        assert browser(source, few).get(path).status_code == 404


@each_of(
    "/",
    "/?q=<script>alert(1)</script>{{{{7*7}}}}",
    "/namespaces/{namespace}",
    "/groups/{namespace}/{name}",
    "/queues",
    "/queues/{queue}",
    "/nodes",
    "/nodes?group={namespace}/{name}",
)
def test_markup_in_names_is_text(path: str) -> None:
    source, evil = sample_source(NOW), HOSTILE_TEXT.replace("/", "")  # which would end a name in a path
    source.seen = spoilt(source.seen, evil)
    group = next(group for group in source.seen.groups if group.wait and group.wait.holders)
    names = {"namespace": group.namespace, "name": group.name, "queue": group.queue}
    answer = browser(source).get(path.format(**{key: quote(name) for key, name in names.items()}))
    assert answer.status_code == 200
    assert "<script>" not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "{{7*7}}" in answer.text


@each_of("/", "/queues", "/nodes")
def test_names_with_steps_in_them_lead_nowhere(path: str) -> None:
    """A pod may name any group, and a browser goes up by `..`."""
    source = sample_source(NOW)
    source.seen = spoilt(source.seen, "/../../groups/victims/train")
    answer = browser(source).get(path)
    assert answer.status_code == 200
    assert "/../../groups/victims/train" in answer.text
    assert not [each for each in re.findall(r'(?:href|action)="([^"]*)"', answer.text) if ".." in each]


@each_of(
    *product(
        SCREENS,
        ["endpoint=static", "_method=POST", "_external=1&_scheme=javascript", "_anchor=x", "self=1&values=1"],
    )
)
def test_a_query_of_an_address_leads_to_no_other_page(path: str, asked: str) -> None:
    asked = f"{asked}&sort=name&name=other&namespace=elsewhere&queue=other"
    asking = f"{path}{'&' if '?' in path else '?'}{asked}"
    answer = browser(sample_source(NOW)).get(
        asking, follow_redirects=True
    )  # of jobs, to those of the namespace
    assert answer.status_code == 200
    links = [
        each for each in re.findall(r'href="([^"]*)"', answer.text) if "sort=" in each or "since=" in each
    ]
    assert {each.partition("?")[0] for each in links} <= {answer.request.path}
    assert "://" not in answer.text


def test_very_long_names_make_no_long_page() -> None:
    source = sample_source(NOW)
    source.seen = spoilt(source.seen, "<b>" + "ä" * 100_000)  # about 10 MB of names
    client = browser(source)
    for path in ("/", "/queues", "/nodes"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert len(answer.data) < 500_000
        assert "<b>ä" not in answer.text


def test_one_large_job_does_not_fill_the_memory_of_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address is another page, and the owner of the job may ask for any number of them."""
    source = sample_source(NOW)
    members = [MemberSummary(f"{'x' * 240}-{at}", "Pending") for at in range(1000)]
    found = source.details("research", "llama-70b")
    monkeypatch.setattr(source, "details", lambda *_: found and replace(found, members=members))
    client = browser(source)
    client.get(GROUP)
    tracemalloc.start()
    try:
        assert {client.get(f"{GROUP}?q={at}").status_code for at in range(60)} == {200}
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 10e6  # with all pods of each it is 48


# ---- long lists


@pytest.fixture(scope="module")
def crowded() -> FlaskClient:
    return browser(crowd(NOW, 200, 2000, 1500))


def test_long_lists_come_in_pages(crowded: FlaskClient) -> None:
    first, last = crowded.get("/").text, crowded.get("/?page=40").text
    assert "2,000 jobs, page 1 of 40" in text(first)
    assert first.count("<tr id=") == 50
    assert "Next" in first
    assert "Next" not in last
    assert "page=39" in last
    assert crowded.get("/?page=9999").text.count("page 40 of 40") == 1
    assert "page 1 of 40" in text(crowded.get("/?page=-1&sort=nonsense").text)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("q=job-00042", "1 job "),
        ("q=JOB-00042+team-42", "1 job "),
        ("q=job-00042+team-41", "No job matches"),
        ("queue=queue-7", "10 jobs"),
        ("state=Starting", "133 jobs"),
        ("state=Failing", "133 jobs"),
        ("namespace=team-3", ""),
    ],
)
def test_lists_are_searched_by_their_address(crowded: FlaskClient, asked: str, found: str) -> None:
    answer = crowded.get(f"/?{asked}")
    if not found:
        assert answer.location == "/namespaces/team-3"
    else:
        assert found in text(answer.text)


def test_the_longest_wait_comes_first_when_it_is_asked_for(crowded: FlaskClient) -> None:
    ages = re.findall(r'data-title="waited"><time[^>]+>(\w+)<', crowded.get("/?sort=-waited").text)
    assert ages[0].startswith("8h")
    assert 'aria-sort="descending"' in crowded.get("/?sort=-waited").text


def test_tiles_stand_for_several_nodes_where_there_are_many(crowded: FlaskClient) -> None:
    page = crowded.get("/nodes").text
    assert 400 < page.count('<i class="tile l') - 8 <= 600 + 4
    assert "1,500 nodes, page 1 of 30" in text(page)


# ---- made once, and not again while nothing changes


def test_a_page_that_has_not_changed_is_not_sent_again() -> None:
    source = sample_source(NOW)
    client = browser(source)
    etag = client.get("/").headers["ETag"]
    assert client.get("/", headers={"If-None-Match": etag}).status_code == 304
    assert client.get("/?page=1", headers={"If-None-Match": etag}).status_code == 200
    source.put(groups=source.seen.groups[1:])
    changed = client.get("/", headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert "14 jobs" in text(changed.text)


def test_an_open_page_is_made_again_only_if_something_that_it_shows_has_changed() -> None:
    source, clock = sample_source(NOW), Clock(NOW)
    client = create_dashboard_app(source, lambda _: SomeViewer(), clock=clock).test_client()
    loaded = client.get("/namespaces/research")
    state = re.findall(r'data-state="([\w-]+)"', loaded.text)[0]

    def again(etag: str) -> int:
        return client.get("/namespaces/research", headers={"If-None-Match": etag}).status_code

    clock.now += 60
    assert again(f'W/"{state}"') == 304, "it counts its ages itself"
    assert [again(each) for each in ("", 'W/""', "*", '"', '"é", W/')] == [200] * 5
    assert again(loaded.headers["ETag"]) == 200, "and who loads it again gets new ones"
    source.put(groups=[group for group in source.seen.groups if group.namespace != "students"])
    assert again(f'W/"{state}"') == 304
    source.put(groups=[group for group in source.seen.groups if group.name != "llama-70b"])
    assert again(f'W/"{state}"') == 200


def test_groups_as_they_were_are_forgotten_within_seconds() -> None:
    source, clock = sample_source(NOW), Clock(NOW)
    client = create_dashboard_app(source, lambda _: SomeViewer(), clock=clock).test_client()
    client.get("/queues/language")
    gc.collect()
    before = sum(isinstance(each, JobIndex) for each in gc.get_objects())
    for number in range(40):
        clock.now += 2
        source.put(groups=[replace(group, failed=number) for group in source.seen.groups])
        client.get("/queues/language")
    gc.collect()
    assert sum(isinstance(each, JobIndex) for each in gc.get_objects()) <= before + 20


def test_a_user_with_fewer_rights_gets_another_page() -> None:
    source = sample_source(NOW)
    ann = SomeViewer()
    bob = SomeViewer(refused={("list", "podgroups", ""), ("list", "podgroups", "research")})
    etag = browser(source, ann).get("/").headers["ETag"]
    answer = browser(source, bob).get("/", headers={"If-None-Match": etag})
    assert "llama" not in answer.text
    assert browser(source, bob).get(GROUP).status_code == 404
    assert browser(source, bob).get(f"/api/v1{GROUP}").status_code == 404
    assert "llama" not in browser(source, bob).get("/api/v1/overview").text


def test_a_user_who_may_not_list_queues_gets_no_links_to_them() -> None:
    client = browser(sample_source(NOW), SomeViewer(refused={("list", "queues", "")}))
    for path in ("/", GROUP):
        assert "language" in client.get(path).text
        assert 'href="/queues/' not in client.get(path).text


def test_each_page_has_its_json() -> None:
    client = browser(sample_source(NOW))
    overview = json.loads(client.get("/api/v1/overview").text)
    assert (overview["apiVersion"], len(overview["groups"])) == ("muster.summary/v1", 15)
    assert [each["resource"] for each in overview["capacity"]] == ["nvidia.com/gpu", "cpu", "memory"]
    one = json.loads(client.get(f"/api/v1{GROUP}").text)
    assert (one["apiVersion"], one["group"]["wait"]["reason"]) == ("muster.summary/v1", "NoRoom")
    queues = client.get("/api/v1/queues")
    assert [item["name"] for item in json.loads(queues.text)["items"]][:2] == ["root", "research"]
    assert client.get("/api/v1/queues", headers={"If-None-Match": queues.headers["ETag"]}).status_code == 304
    assert len(json.loads(client.get("/api/v1/groups?namespace=students").text)["items"]) == 2


def test_the_share_of_a_queue_over_the_last_hour_is_drawn() -> None:
    source, clock = sample_source(NOW), Clock(NOW)

    def page_now() -> str:
        app = create_dashboard_app(source, lambda _: SomeViewer(), clock=clock)
        return app.test_client().get("/queues/language").text

    source.shares.record({"language": 0.5}, NOW - 660)
    unknown = "The chart appears after two minutes"
    assert unknown in page_now()
    source.shares.record({"language": 2.0}, NOW - 600)
    page, since = page_now(), timestamp_at(NOW - 660)[11:19]
    assert "From 50% to 200% of what it deserves, now 150%." in page
    assert f"From before {since} UTC, nothing is known." in page
    with_history(source, NOW)
    page = page_now()
    assert "nothing is known" not in page
    assert "Share of language over the last hour: 75% to 150%, now 150%" in page
    points = re.findall(r'polyline points="([^"]+)"', page)[0].split()
    assert len(points) == 61
    assert points[0].startswith("0.0,")
    assert points[-1].startswith("100.0,0")
    clock.now += 7200
    assert unknown in page_now(), "it is long ago"


def test_history_has_usage_and_waits_by_namespace() -> None:
    page = text(browser(sample_source(NOW)).get("/history?since=7d").text)
    assert "GPU hours 1,179" in page
    assert re.search(r"language 480 of 300 deserved 3,840 110% 1 1h30m 1h30m 1h30m 1 12 ", page)


@each_of(
    (set(), "user", 200, "product-bot", "vision"),
    (FEW, "user", 200, "language", "product-bot"),
    (FEW | {("list", "queues", "")}, "", 200, "research", "product"),
    (FEW | {("list", "queues", "")}, "namespace", 200, "research", "GPU hours lost by that"),
    (FEW | {("list", "queues", ""), ("list", "podgroups", "research")}, "", 404, "Not Found", "research"),
)
def test_history_sums_up_only_what_the_user_may_see(
    refused: set[tuple[str, ...]], by: str, status: int, shown: str, hidden: str
) -> None:
    client = browser(sample_source(NOW), SomeViewer(refused=refused))
    for path in ("/history", "/api/v1/history"):
        answer = client.get(f"{path}?by={by}")
        assert answer.status_code == status
        assert shown in answer.text
        assert hidden not in answer.text


def test_the_past_of_a_namespace_stays_when_its_last_group_has_gone() -> None:
    source = sample_source(NOW)
    few: set[tuple[str, ...]] = {*FEW, ("list", "queues", "")}
    source.put(groups=[group for group in source.seen.groups if group.namespace != "research"])
    for path in ("/history", "/api/v1/history"):
        answer = browser(source, SomeViewer(refused=few)).get(path)
        assert answer.status_code == 200
        assert "research" in answer.text
        assert "product" not in answer.text


def test_a_report_is_made_again_when_its_replica_begins_to_lead() -> None:
    source, made = sample_source(NOW), list[Period]()

    def reported(period: Period) -> Report:
        made.append(period)
        return past(period)

    app = create_dashboard_app(source, lambda _: SomeViewer(), history=reported, clock=lambda: NOW)
    client = app.test_client()
    source.put(notes=["This replica does not lead"])
    pages = [client.get("/history").status_code, client.get("/history").status_code]
    source.put(notes=[])
    assert [*pages, client.get("/history").status_code, len(made)] == [200, 200, 200, 2]


def test_without_history_there_is_no_page_of_it() -> None:
    viewer = SomeViewer()
    client = create_dashboard_app(sample_source(NOW), lambda _: viewer).test_client()
    assert "History" not in client.get("/").text
    assert client.get("/history").status_code == 404


@each_of("/groups/research/none", "/queues/none", "/nothing", "/api/v1/secrets")
def test_a_page_of_a_missing_object_is_not_found(path: str) -> None:
    assert browser(sample_source(NOW)).get(path).status_code == 404


def test_an_empty_cluster_says_what_its_pages_will_show() -> None:
    source = sample_source(NOW)
    source.put(queues=(), groups=(), nodes=(), reservations=(), decisions=())
    client = browser(source)
    assert "No jobs yet" in text(client.get("/").text)
    assert "There are no queues yet" in text(client.get("/queues").text)
    assert "There are no nodes yet" in text(client.get("/nodes").text)


def test_every_page_reports_a_silent_muster() -> None:
    source = sample_source(NOW)
    source.put(silent_since="2026-11-27T10:00:00Z")
    assert "Muster has decided nothing since 2026-11-27T10:00:00Z" in text(
        browser(source).get("/queues").text
    )


def test_health_is_answered_to_all_callers() -> None:
    client = create_dashboard_app(sample_source(NOW), lambda _: None).test_client()
    assert (client.get("/healthz").status_code, client.get("/healthz").text) == (200, "ok")
    assert client.get("/").status_code == 401


# ---- what comes from others


def test_vendored_files_have_the_checksums_of_their_authors() -> None:
    folder = STATIC / "vendor"
    lines = [line.split() for line in (folder / "SHA256SUMS").read_text().splitlines()]
    sums = {name: checksum for checksum, name in lines}
    found = {each.name for each in folder.iterdir()} - {"SHA256SUMS"}
    assert found == set(sums)
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sums} == sums


def test_pictures_are_well_formed() -> None:
    for picture in STATIC.glob("*.svg"):
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")


# ---- a first look


def rows(page: str) -> list[str]:
    """Return the readable text of each row of the tables of a page."""
    return [text(each).strip() for each in re.findall(r"<tr.*?</tr>", page, re.DOTALL)]


def test_domains_of_a_topology_have_their_free_capacity() -> None:
    shown = rows(browser(sample_source(NOW)).get("/nodes").text)
    first = shown.index("b0 50 gpu 120 15")
    assert shown[first + 1 : first + 4] == [
        f"b0 / r{n} {free} gpu 40 5" for n, free in enumerate((16, 16, 18))
    ]
    assert "b3 / r9 310 cpu 320 5" in shown
    found = rows(browser(sample_source(NOW)).get("/nodes?q=r7").text)
    assert [each for each in found if " / " in each] == ["b2 / r7 16 gpu 20 5"]
    assert sum(each.startswith("l4-") for each in found) == 5, "the nodes of the domain"


def test_domains_are_shown_only_where_there_are_some_and_to_those_who_may_list_nodes() -> None:
    source = sample_source(NOW)
    few = browser(source, SomeViewer(refused={("list", "nodes", "")}))
    assert "Domain" not in text(few.get("/nodes").text)
    source.put(topologies=())
    assert "Domain" not in text(browser(source).get("/nodes").text)


def test_of_many_domains_some_are_shown(crowded: FlaskClient) -> None:
    page = crowded.get("/nodes").text
    assert sum(" / " in row for row in rows(page)) < 50
    assert "And 254 more. The search below finds them by name." in text(page)


def test_the_page_of_queues_begins_with_the_cluster() -> None:
    source = with_history(sample_source(NOW), NOW)
    page = browser(source).get("/queues").text
    shown = rows(page)
    assert shown[1].startswith("nvidia.com/gpu 143 4 27 126 300 64"), "devices first"
    assert [each.partition(" ")[0] for each in shown[2:4]] == ["cpu", "memory"]
    assert "Usage of nvidia.com/gpu over the last hour: 40% to 80%" in page
    few = browser(source, SomeViewer(refused={("list", "nodes", "")})).get("/queues").text
    assert "The cluster" not in few
    assert "nvidia.com/gpu" not in few
    hidden = SomeViewer(refused={("list", "podgroups", each) for each in ("", "research")})
    assert "waiting" in page
    assert rows(browser(source, hidden).get("/queues").text)[1].startswith(
        "nvidia.com/gpu 143 4 27 126 300 0"
    )


def test_pages_have_the_name_of_the_cluster_and_of_the_context() -> None:
    named = ClusterName("prod-eu", "ann@prod")
    client = create_dashboard_app(sample_source(NOW), lambda _: SomeViewer(), cluster=named).test_client()
    page = client.get("/queues").text
    assert "<title>Queues · prod-eu · Muster</title>" in page
    assert "Cluster prod-eu context ann@prod" in text(page)
    stranger = create_dashboard_app(sample_source(NOW), lambda _: None, cluster=named).test_client()
    assert "prod-eu" not in stranger.get("/queues").text


def bars(source: SampleSource, path: str = "/queues") -> dict[str, list[tuple[str, str]]]:
    """Return the rectangles and lines of the first bar of each queue: kinds, and widths or places."""
    page, found = browser(source).get(path).text, {}
    for row in re.findall(r"<tr>\s*<th scope=\"row\" class=.*?</tr>", page, re.DOTALL):
        drawn = re.search(r"<svg class=.bar.*?</svg>", row, re.DOTALL)
        name = re.search(r">([^<]+)</a>", row)
        assert drawn is not None
        assert name is not None
        found[name[1]] = re.findall(
            r'<(?:rect|line) class="(\w+)" (?:x="[^"]*" |)(?:width|x1)="([\d.]+)%"', drawn[0]
        )
    return found


def test_bars_of_queues_share_the_scale_of_the_cluster() -> None:
    source, gpu = sample_source(NOW), "nvidia.com/gpu"
    share = ShareSummary(gpu, allocated=24, deserved=12, guarantee=6, ceiling=24, borrowed=12)
    source.put(
        queues=[
            QueueSummary("root", shares=[ShareSummary(gpu, allocated=60, deserved=120)]),
            QueueSummary("full", "root", 1, shares=[share]),
            QueueSummary("open", "root", 1, shares=[ShareSummary(gpu, allocated=30, deserved=60)]),
        ]
    )
    drawn = bars(source)
    assert drawn["root"] == [("track", "100.0"), ("own", "100.0"), ("held", "50.0"), ("deserved", "100.0")]
    assert drawn["open"] == [("track", "100.0"), ("own", "50.0"), ("held", "25.0"), ("deserved", "50.0")]
    assert drawn["full"] == [
        ("track", "20.0"),  # up to the ceiling: it is full
        ("own", "10.0"),
        ("held", "10.0"),
        ("borrowed", "10.0"),
        ("ceiling", "20.0"),
        ("deserved", "10.0"),
        ("guarantee", "5.0"),
    ]
    assert "full gpu 24 of 12 · borrows 12 at its ceiling" in text(browser(source).get("/queues").text)


def test_nothing_empty_is_listed() -> None:
    source = sample_source(NOW)
    empty = [ShareSummary("memory"), ShareSummary("cpu", allocated=1)]
    node = replace(source.seen.nodes[0], allocatable={"cpu": 4.0, "memory": 0.0}, used={}, claimed={})
    source.put(queues=[QueueSummary("q", shares=empty)], nodes=[node])
    client = browser(source)
    for path in ("/queues", "/queues/q", "/nodes"):
        assert "memory" not in client.get(path).text
    assert 'class="count failing"' in client.get("/").text
    source.put(groups=[group for group in source.seen.groups if not group.failed])
    assert 'class="count "' in client.get("/").text
    assert "failing" not in client.get("/").text


def test_the_list_of_jobs_has_owner_priority_gpus_and_times() -> None:
    client = browser(sample_source(NOW))
    found = {row.split()[1]: row.replace("\u2013", "-") for row in rows(client.get("/").text)}
    assert found["llama-70b"] == (
        "Waiting llama-70b research NoRoom nvidia.com/gpu: 64 needed, 40 left on suitable nodes; capacity "
        "for 5 of 8 members. ada@example.org language 1 of 4 1,000 64 47m - in 34m 90%: 89m 0 of 8"
    )
    assert "language 0 24 - 19h - 3 of 3" in found["moe-8x7b"]
    assert "Evicted 19h ago: Queue vision is below its deserved share." in found["moe-8x7b"]
    for sort, first in (("devices", "llama-70b"), ("priority", "llama-70b"), ("-runs", "moe-8x7b")):
        assert rows(client.get(f"/?sort={sort}").text)[1].split()[1] == first


def test_the_list_names_the_resource_of_a_job_that_never_fits() -> None:
    source = sample_source(NOW)
    wait = WaitSummary("NeverFits", sentence(Reason.NEVER_FITS.meaning), "no node has example.com/fpga")
    source.put(groups=[replace(source.seen.groups[0], verdict="Waiting", wait=wait)])
    assert "NeverFits No node has example.com/fpga." in text(browser(source).get("/").text)


def test_a_job_page_says_why_its_pods_were_evicted() -> None:
    page = text(browser(sample_source(NOW)).get("/groups/research/moe-8x7b").text)
    assert "Evicted 19h ago, Reclaim: queue vision is below its deserved share" in page


def test_nodes_have_their_health_and_several_resources() -> None:
    shown = rows(browser(sample_source(NOW)).get("/nodes").text)
    by_name = {each.split()[0]: each for each in shown}
    assert by_name["a100-001"] == (
        "a100-001 a100 ready gpu 7 of 8 cpu 44 of 64 memory 344 GiB of 512 GiB research/moe-8x7b"
    )
    assert " cordoned " in by_name["a100-011"]
    assert " not ready memory pressure " in by_name["h100-002"]
    sorted_nodes = browser(sample_source(NOW)).get("/nodes?sort=health").text.partition("Each node")[2]
    assert "not ready" in rows(sorted_nodes)[1]


def test_local_queues_are_shown_with_the_right_to_list_them() -> None:
    source = sample_source(NOW)
    client = browser(source)
    assert "3 local queues" in text(client.get("/queues").text)
    page = client.get("/local-queues?q=students").text
    assert rows(page)[1:] == ["lab queue students is Closing students students 1 1 1 gpu"]
    assert "research/language 3 waiting, 2 admitted" in text(client.get("/queues/language").text)
    found = json.loads(client.get("/api/v1/local-queues?namespace=research").text)
    assert len(found["items"]) == 2
    few = browser(source, SomeViewer(refused={("list", "localqueues", each) for each in ("", "research")}))
    assert "1 local queue" in text(few.get("/queues").text)
    assert "research" not in few.get("/local-queues").text
    assert "research" not in few.get("/api/v1/local-queues").text
    assert "Local queues that lead to it" not in few.get("/queues/language").text
