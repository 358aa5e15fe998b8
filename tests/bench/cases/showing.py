"""Dashboard in a separate process: time until a page is complete, and cost of open pages.

The cluster has 1,000 queues, 10,000 groups and 5,000 nodes. First, each page is requested while the cluster
changes all the time, so that the page is rendered again (tests/dashboard/sample.py). Then 100 pages of
different users at eight addresses poll like browsers: first while nothing changes, then while a gang arrives
and a scheduling cycle runs each second. The case also measures how late the same process answers the
scheduler (tests/bench/watched.py).
"""

import asyncio
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from statistics import median, quantiles
from urllib.parse import urlsplit

import aiohttp
import msgspec

from extender.dashboard.rendering import AGAIN_HEADER
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.bench.watched import Reading

_PATHS = (
    *("/", "/?page=7", "/?state=Waiting&sort=-waited", "/namespaces/team-3", "/groups/team-1/job-00001"),
    *("/queues", "/queues/queue-7", "/nodes"),
)
_OPEN_PATHS = (
    *("/", "/?page=7", "/?state=Waiting&sort=-waited", "/namespaces/team", "/groups/team/job-00001"),
    *("/queues", "/queues/queue-7", "/nodes"),
)
_OPEN_PAGES, _OPEN_SECONDS = 100, 20.0  # number of open pages, and seconds for which the pages are open
_PAUSE, _PAUSE_SPREAD = (
    1.9,
    0.2,
)  # seconds between two requests of a page, and their random part, as in live.js
_WARM_UP = 10.0  # seconds before the measurement, for first requests and for compiling templates
_STATE_PATTERN = re.compile(r'data-state="([\w-]+)"')
_REPEATS = 7


def show_case(bench: Bench) -> Iterator[Row]:
    """Yield a row for each page, and a row for open pages without and with changes."""
    groups = bench.sizes.pods
    with _served_dashboard(groups, changes=4) as address:
        for path in _PATHS:
            yield {"groups": groups, "path": path, **asyncio.run(_page_time(address, path))}
    for changes in (0, 1):
        show(f"{_OPEN_PAGES} pages for {_OPEN_SECONDS:g} s, {changes} changes a second")
        row = asyncio.run(_load_of_pages(groups, changes))
        yield {"groups": groups, "pages open": _OPEN_PAGES, "changes a second": changes, **row}


@contextmanager
def _served_dashboard(groups: int, changes: int) -> Iterator[str]:
    """Start a dashboard with a sample cluster, and yield its address."""
    command = [sys.executable, "-m", "tests.dashboard.sample", str(groups), str(changes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def _page_time(address: str, path: str) -> Row:
    """Return the milliseconds until the first byte and until the last byte of a page."""
    first_byte_times, page_times = [], []
    url = urlsplit(address)
    for number in range(_REPEATS + 1):  # The first request compiles the template and does not count.
        await asyncio.sleep(0.3)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        started_at = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n\r\n".encode())
        await reader.read(1)
        first_byte_at = time.perf_counter()
        size = 1 + len(await reader.read())
        if number:
            first_byte_times.append((first_byte_at - started_at) * 1000)
            page_times.append((time.perf_counter() - started_at) * 1000)
        writer.close()
    return {
        "first byte ms": median(first_byte_times),
        "page ms": median(page_times),
        "longest ms": max(page_times),
        "KB": size / 1e3,
    }


@contextmanager
def _measured_muster(groups: int, changes: int, api_port: int) -> Iterator[tuple[str, Callable[[], Reading]]]:
    """Start Muster with a dashboard. Yield its address, and a function that returns the next reading.

    A reading covers the time since the last call of the function.
    """
    command = [sys.executable, "-m", "tests.bench.watched", str(groups), str(changes), str(api_port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        commands, readings = process.stdin, process.stdout
        assert commands is not None
        assert readings is not None

        def take_reading() -> Reading:
            commands.write(b"\n")
            commands.flush()
            return msgspec.json.decode(readings.readline(), type=Reading)

        try:
            yield readings.readline().decode().strip(), take_reading
        finally:
            process.kill()


async def _load_of_pages(groups: int, changes: int) -> Row:
    """Return the cost of open pages, and the delays of answers to the scheduler.

    The delays are measured without open pages and with open pages.
    """
    api = await asyncio.start_server(_answer_reviews, "127.0.0.1", 0)
    with _measured_muster(groups, changes, api.sockets[0].getsockname()[1]) as (address, take_reading):
        take_reading()
        await asyncio.sleep(_OPEN_SECONDS)
        idle_reading = take_reading()
        statuses: list[int] = []
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=_OPEN_PAGES)) as session:
            pages = [
                asyncio.create_task(_poll_page(session, address, number, statuses))
                for number in range(_OPEN_PAGES)
            ]
            await asyncio.sleep(_WARM_UP)
            statuses.clear()
            reading_before = take_reading()
            await asyncio.sleep(_OPEN_SECONDS)
            reading_after = take_reading()
            for page in pages:
                page.cancel()
            await asyncio.gather(*pages, return_exceptions=True)
    assert set(statuses) <= {200, 304}
    return {
        "answers": len(statuses),
        "of them new": statuses.count(200),
        "% of a core": (reading_after.cpu - reading_before.cpu) / _OPEN_SECONDS * 100,
        **{
            f"{kind} {name} ms": value
            for kind, times in (("filter alone", idle_reading.answers), ("filter", reading_after.answers))
            for name, value in zip(("p50", "p99", "longest"), _percentiles(times), strict=True)
        },
        "round alone ms": median(idle_reading.cycles or [0.0]),
        "round ms": median(reading_after.cycles or [0.0]),
    }


def _percentiles(times: list[float]) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the maximum."""
    return median(times), quantiles(times, n=100)[98], max(times)


async def _poll_page(session: aiohttp.ClientSession, address: str, number: int, statuses: list[int]) -> None:
    """Poll a page as live.js does, with the token of one user."""
    authorization, state, pause = {"Authorization": f"Bearer viewer-{number}"}, "", _PAUSE
    await asyncio.sleep(number * _PAUSE / _OPEN_PAGES)
    while True:
        headers = {**authorization, "If-None-Match": f'W/"{state}"'} if state else authorization
        async with session.get(address + _OPEN_PATHS[number % len(_OPEN_PATHS)], headers=headers) as answer:
            if match := _STATE_PATTERN.search(await answer.text()):
                state = match[1]
            statuses.append(answer.status)
            pause = float(answer.headers.get(AGAIN_HEADER, _PAUSE))
        await asyncio.sleep(pause + random.uniform(0, _PAUSE_SPREAD))


async def _answer_reviews(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer access reviews like an API server that knows all tokens and grants all rights."""
    with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            spec = msgspec.json.decode(await reader.readexactly(int(length[1]) if length else 0))["spec"]
            user = {"username": spec.get("token", "")}
            body = msgspec.json.encode({"status": {"allowed": True, "authenticated": True, "user": user}})
            writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
