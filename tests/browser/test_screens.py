"""Every screen in a real browser: complete, readable by anybody, alive, and harmless whatever names say."""

import re
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from extender.api.summaries import Overview
from extender.api.units import human_duration
from extender.dashboard.overviews import DecisionSource
from extender.dashboard.source import ClusterName
from extender.dashboard.token_login import TokenLogin
from extender.host.dashboard import what_if_source
from extender.kube.connection import Connection
from tests.browser.conftest import Open, served
from tests.dashboard.authority import Authority
from tests.dashboard.sample import SampleSource, crowd, fresh, long_names, sample_source, spoilt, with_history
from tests.dashboard.standins import SomeViewer
from tests.dashboard.test_what_if import two_that_wait

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
GROUP = "/groups/research/llama-70b"
SCREENS = {
    "jobs": "/",
    "jobs of one namespace": "/namespaces/research?state=Waiting",
    "nothing found": "/?q=nobody",
    "a job": GROUP,
    "a running job": "/groups/research/vit-pretrain",
    "queues": "/queues",
    "a queue": "/queues/language",
    "history": "/history",
    "history of a day by user": "/history?since=1d&by=user",
    "nodes": "/nodes",
    "nodes of a job": "/nodes?group=research/vit-pretrain",
    "local queues": "/local-queues",
    "a job of an owner": "/namespaces/product/job/backfill-q3",
}


def faults(page: Page) -> list[str]:
    """Return the faults that axe finds for users with low vision, of keyboards or of screen readers."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run().then(it => it.violations)")
    return [f"{each['id']}: {each['help']}: {node['html'][:300]}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("path", SCREENS.values(), ids=SCREENS)
def test_every_screen_is_readable_by_anybody_on_anything(opened: Open, path: str) -> None:
    with served(with_history(sample_source(time.time()), time.time())) as address:
        page = opened(address + path)
        assert faults(page) == []
        page.emulate_media(color_scheme="dark")
        assert faults(page) == []
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert faults(page) == []


CLUSTERS: dict[str, Callable[[float], SampleSource]] = {
    "no groups": fresh,
    "ten groups": lambda now: with_history(long_names(now), now),
    "2,000 groups": lambda now: with_history(crowd(now, 200, 2000, 1500), now),
}


def too_wide(page: Page) -> list[str]:
    """Return what is wider than its frame, or cut off: tables, and words of badges, buttons and figures."""
    found: list[str] = page.evaluate(
        """[...document.querySelectorAll('.frame, .badge, .tag, .button, button, h1')]
           .filter((it) => it.clientWidth && it.scrollWidth > it.clientWidth + 1)
           .map((it) => `${it.className} ${it.textContent.slice(0, 60)}`)"""
    )
    document = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [*found, *(["the page"] if document > 0 else [])]


@pytest.mark.parametrize("groups", CLUSTERS)
def test_a_first_look_fits_on_a_desk_and_on_a_phone(opened: Open, groups: str) -> None:
    source = CLUSTERS[groups](time.time())
    named = ClusterName("prod-eu-west4-research-platform", "ann@prod-eu-west4-research-platform")
    with served(source, cluster=named) as address:
        page = opened(f"{address}/")
        job = page.locator(".jobs a.name")
        paths = ["/", "/queues", "/nodes", "/local-queues"]
        if job.count():
            paths += [str(job.first.get_attribute("href")), f"/queues/{source.seen.queues[1].name}"]
        for path, width, is_dark in product(paths, (1280, 390), (False, True)):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme="dark" if is_dark else "light")
            page.goto(address + path)
            assert (path, width, too_wide(page)) == (path, width, [])
            assert faults(page) == []
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(f"{address}/nodes")
        heights = page.evaluate(
            "[...document.querySelectorAll('.nodes .oneline')].map((it) => it.clientHeight)"
        )
        assert all(height < 30 for height in heights), "names of nodes take one line"


def test_a_change_appears_while_one_types(opened: Open) -> None:
    source = sample_source(time.time())
    with served(source) as address:
        page = opened(f"{address}/")
        search = page.get_by_role("searchbox")
        search.fill("half a na")
        expect(page.get_by_text("15 jobs")).to_be_visible()
        source.put(groups=source.seen.groups[1:])
        expect(page.get_by_text("14 jobs")).to_be_visible(timeout=20_000)
        expect(search).to_be_focused()
        expect(search).to_have_value("half a na")


def test_what_is_offered_changes_while_one_types(opened: Open) -> None:
    """The page to which an action leads is made before Muster has seen what it did."""
    source = sample_source(time.time())
    with served(source) as address:
        page = opened(address + GROUP)
        typed = page.get_by_label("Priority class")
        typed.fill("hi")
        typed.blur()
        groups = [
            replace(group, held=True) if f"/groups/{group.key}" == GROUP else group
            for group in source.seen.groups
        ]
        source.put(groups=groups)
        expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=20_000)
        expect(page.get_by_role("button", name="Hold")).to_have_count(0)
        expect(typed).to_have_value("hi")


def test_a_hidden_tab_asks_nothing_until_it_is_visible(opened: Open) -> None:
    source = sample_source(time.time())
    with served(source) as address:
        page = opened(f"{address}/healthz")
        urls: list[str] = []
        page.clock.install()
        page.goto(f"{address}/")
        page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        page.clock.run_for(5_000)  # a request in flight is answered
        page.on("request", lambda request: urls.append(request.url))
        source.put(groups=source.seen.groups[1:])
        page.clock.run_for(60_000)
        assert urls == []
        page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.get_by_text("14 jobs")).to_be_visible(timeout=20_000)


def test_an_open_page_counts_how_long_one_waits_without_being_made_again(opened: Open) -> None:
    with served(sample_source(time.time())) as address:
        page = opened(f"{address}{GROUP}")
        answers: list[int] = []
        page.on(
            "response", lambda response: answers.append(response.status) if response.url == page.url else None
        )
        waited = page.locator("dt:text-is('Waited') + dd time")
        page.evaluate("(it) => { it.dateTime = new Date().toISOString(); it.textContent = 'then'; }",
                      waited.element_handle())  # fmt: skip
        expect(waited).to_have_text(re.compile(r"^([3-9]|\d\d)s$"), timeout=60_000)
        assert set(answers) == {304}
        seconds = [
            0,
            119,
            120,
            605,
            10_799,
            10_800,
            20_000,
            100_000,
            400_000,
            9_000_000,
            90_000_000,
            900_000_000,
        ]
        assert page.evaluate("(all) => all.map(rounded)", seconds) == [
            human_duration(each) for each in seconds
        ]


def test_an_open_page_says_when_the_server_is_gone_and_when_it_is_back(opened: Open) -> None:
    source = sample_source(time.time())
    with served(source) as address:
        page = opened(f"{address}/queues")
    expect(page.get_by_text("Not up to date")).to_be_visible(timeout=20_000)
    source.put(queues=source.seen.queues[:3])
    with served(source, port=int(address.rpartition(":")[2])):
        expect(page.get_by_text("3 queues")).to_be_visible(timeout=40_000)
        expect(page.get_by_text("Not up to date")).to_be_hidden()


def test_all_is_there_without_a_script(opened: Open) -> None:
    with served(sample_source(time.time())) as address:
        page = opened(f"{address}/", java_script_enabled=False)
        page.get_by_role("link", name="Waited").click()
        assert "sort=waited" in page.url
        page.get_by_role("link", name="llama-70b", exact=True).click()
        expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()
        expect(page.get_by_text("kubectl -n research patch podgroup llama-70b")).to_be_visible()
        page.get_by_role("link", name="Queues").click()
        page.get_by_role("link", name="language").click()
        expect(page.get_by_role("heading", name="language")).to_be_visible()


def test_the_keyboard_leads_to_the_content_first(opened: Open) -> None:
    with served(sample_source(time.time())) as address:
        page = opened(f"{address}/")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()


def test_a_list_of_ten_thousand_has_pages(opened: Open) -> None:
    with served(crowd(time.time(), 1000, 10_000, 5000)) as address:
        page = opened(f"{address}/?sort=name")
        expect(page.get_by_text("10,000 jobs, page 1 of 200")).to_be_visible()
        page.get_by_role("link", name="Next").click()
        expect(page.get_by_role("link", name="job-00050")).to_be_visible()
        page.get_by_role("searchbox").fill("job-04242")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="Nodes", exact=True).click()
        expect(page.get_by_text("5,000 nodes, page 1 of 100")).to_be_visible()
        assert page.locator(".tiles i").count() <= 604


def test_markup_in_names_runs_nothing(opened: Open) -> None:
    source = sample_source(time.time())
    source.seen = spoilt(source.seen, "<img src=x onerror=alert(1)><script>alert(2)</script>")
    with served(source) as address:
        for path in ("/", "/queues", "/nodes"):
            assert opened(address + path).locator("img").count() == 1, "only ours"


def test_a_command_is_copied(opened: Open) -> None:
    with served(sample_source(time.time())) as address:
        page = opened(address + GROUP, permissions=["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy").first.click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()").startswith(
            "kubectl -n research patch podgroup"
        )


# ---- who may look


def test_a_token_opens_the_door_and_what_it_may_not_see_is_not_there(
    opened: Open, connection: Connection
) -> None:
    authority = Authority(rights={("ann", "list", "students")})
    token_login = TokenLogin(authority, connection.endpoint)
    with served(
        sample_source(time.time()), identify=token_login.identify, login=token_login.login
    ) as address:
        page = opened(f"{address}/")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        assert faults(page) == []
        page.get_by_label("Token").fill("of-nobody")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know this token")
        page.get_by_label("Token").fill("of-ann")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("2 jobs")).to_be_visible()
        expect(page.get_by_text("mnist-lab-3")).to_be_visible()
        page.goto(address + GROUP)
        expect(page.get_by_role("heading", name="Not Found")).to_be_visible()
        assert faults(page) == []
        page.goto(f"{address}/nodes")
        expect(page.get_by_text("You may not list nodes.")).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()


# ---- actions


@pytest.mark.parametrize(
    ("path", "button", "plural", "changed"),
    [
        (GROUP, "Hold", "podgroups", "hold"),
        ("/groups/research/depth-ft", "Resume", "podgroups", "hold"),
        (GROUP, "Change priority", "podgroups", "priorityClassName"),
        ("/queues/language", "Hold", "queues", "stopPolicy"),
        ("/queues/nightly", "Resume", "queues", "stopPolicy"),
        ("/queues/language", "Close", "queues", "state"),
        ("/queues/students", "Open", "queues", "state"),
    ],
)
def test_an_action_is_done_once_it_is_confirmed(
    opened: Open, path: str, button: str, plural: str, changed: str
) -> None:
    viewer = SomeViewer()
    with served(sample_source(time.time()), viewer) as address:
        page = opened(address + path)
        if button == "Change priority":
            page.get_by_label("Priority class").fill("urgent")
        page.get_by_role("button", name=button, exact=True).click()
        assert viewer.patched == [], "only asked so far"
        assert faults(page) == []
        page.get_by_role("link", name="No, go back").click()
        assert page.url == address + path
        if button == "Change priority":
            page.get_by_label("Priority class").fill("urgent")
        page.get_by_role("button", name=button, exact=True).click()
        page.get_by_role("button", name="Yes").click()
        expect(page).to_have_url(address + path)
    ((what, _, name, patch),) = viewer.patched
    assert (what, name) == (plural, path.rpartition("/")[2])
    assert changed in str(patch)


def test_no_action_is_offered_without_the_right_to_it(opened: Open) -> None:
    viewer = SomeViewer(refused={("patch", "podgroups", "research"), ("patch", "queues", "")})
    with served(sample_source(time.time()), viewer) as address:
        for path in (GROUP, "/queues/language"):
            page = opened(address + path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator("form[method=post]")).to_have_count(0)


def test_what_if_is_asked_on_the_page_of_a_job(opened: Open) -> None:
    stage = two_that_wait()
    source = DecisionSource(lambda: stage.decisions, list)
    with served(source, trials=what_if_source(stage.ledger)) as address:
        page = opened(f"{address}/groups/team/first", width=360, height=740)
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_label("Change").select_option("more nodes")
        page.get_by_label("Number").fill("1")
        page.get_by_role("button", name="What if?").click()
        expect(page.get_by_text("team/first would start now.")).to_be_visible()
        assert faults(page) == []
        page.get_by_label("Number").fill("<b>")
        page.get_by_role("button", name="What if?").click()
        expect(page.get_by_role("alert")).to_contain_text("'nodes=+<b>': must be")
        assert faults(page) == []
        page.get_by_role("link", name="team/first").click()
        expect(page).to_have_url(f"{address}/groups/team/first")


def test_an_empty_cluster_is_readable(opened: Open) -> None:
    source = sample_source(time.time())
    source.seen = Overview("1", source.seen.at)
    with served(source) as address:
        for path in ("/", "/queues", "/nodes"):
            page = opened(address + path)
            assert faults(page) == []
            expect(page.locator(".empty")).to_be_visible()
