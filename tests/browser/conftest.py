"""Fixtures: a real headless Chromium, which `make browser` installs, and dashboards on loopback."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from flask import Blueprint
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from extender.api.setting_kinds import Address
from extender.dashboard.app import Identify, create_dashboard_app
from extender.dashboard.overviews import DecisionSource
from extender.dashboard.source import UNNAMED, ClusterName
from extender.dashboard.what_if_page import WhatIfTrials
from extender.web.side_ports import SideServer, pages
from extender.web.sockets import listen
from tests.dashboard.sample import SampleSource, past
from tests.dashboard.standins import SomeViewer
from tests.kube.conftest import connection, server

__all__ = ["connection", "server"]
_REFUSED = "Failed to load resource"  # the browser's message about refusals, which some tests expect
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.exit("no Chromium on this machine: install it, or name it in CHROMIUM=", returncode=2)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Open]:
    """Yield a function that opens a page in a separate browser.

    The test fails if the page reports an error of a script, or a violation of the content security
    policy.
    """
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def record(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_REFUSED):
            errors.append(message.text)

    def record_missing(request: Request) -> None:
        answer = request.response()
        if "/static/" in request.url and answer and answer.status >= 400:
            errors.append(f"{request.url}: {answer.status}")

    def open_page(address: str, width: int = 1280, height: int = 800, **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", record)
        page.on("requestfinished", record_missing)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(f"a dialog: {dialog.message}"))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@contextmanager
def served(
    source: SampleSource | DecisionSource,
    viewer: SomeViewer | None = None,
    identify: Identify | None = None,
    login: Blueprint | None = None,
    port: int = 0,
    trials: WhatIfTrials | None = None,
    cluster: ClusterName = UNNAMED,
) -> Iterator[str]:
    """Yield the address of a dashboard that shows `source` to `viewer`."""
    used_viewer = viewer or SomeViewer()
    identify = identify or (lambda _: used_viewer)
    app = create_dashboard_app(source, identify, login, past, trials=trials, cluster=cluster)
    listener = listen("--dashboard-listen", Address("127.0.0.1", port))
    server = SideServer("dashboard", listener, pages(app), allows_web_pages=True)
    try:
        yield f"http://{server.address}"
    finally:
        server.stop()
