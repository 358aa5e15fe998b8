"""The dashboard of a process of its own: how soon a page is there, and what open pages cost.

1,000 queues, 10,000 groups and 5,000 nodes. First each page while something changes all the time, so that it
is made anew; then 100 pages, of eight addresses, that ask as a browser does: while nothing changes, and while
a group changes each second. The process is tests/dashboard/sample.py.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from urllib.parse import urlsplit

import aiohttp

from tests.bench.meters import cpu_microseconds
from tests.bench.report import Row, show
from tests.bench.sizes import Bench

_PATHS = (
    *("/", "/?page=7", "/?state=Waiting&sort=-waited", "/namespaces/team-3", "/groups/team-1/job-00001"),
    *("/queues", "/queues/queue-7", "/nodes"),
)
_OPEN, _SECONDS, _PAUSE = 100, 20.0, 1.9  # pages; how long they are; between two questions of one
_STATE = re.compile(r'data-state="(\w+)"')
_TIMES = 7


def show_case(bench: Bench) -> Iterator[Row]:
    groups = bench.sizes.pods
    with _served(groups, changes=4) as (address, _):
        for path in _PATHS:
            yield {"groups": groups, "path": path, **asyncio.run(_timed(address, path))}
    for changes in (0, 1):
        show(f"{_OPEN} pages for {_SECONDS:g} s, {changes} changes a second")
        with _served(groups, changes) as (address, pid):
            answers, spent = asyncio.run(_poll(address, pid))
        yield {
            "groups": groups,
            "pages open": _OPEN,
            "changes a second": changes,
            "answers": len(answers),
            "of them new": sum(status == 200 for status in answers),
            "% of a core": spent / _SECONDS * 100,
        }


@contextmanager
def _served(groups: int, changes: int) -> Iterator[tuple[str, int]]:
    """Its address and process."""
    command = [sys.executable, "-m", "tests.dashboard.sample", str(groups), str(changes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.kill()


async def _timed(address: str, path: str) -> Row:
    """Milliseconds until the first byte, and until the whole page is there."""
    firsts, wholes = [], []
    url = urlsplit(address)
    for number in range(_TIMES + 1):  # the first compiles its template
        await asyncio.sleep(0.3)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        began = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n\r\n".encode())
        await reader.read(1)
        first = time.perf_counter()
        size = 1 + len(await reader.read())
        if number:
            firsts.append((first - began) * 1000)
            wholes.append((time.perf_counter() - began) * 1000)
        writer.close()
    return {
        "first byte ms": median(firsts),
        "page ms": median(wholes),
        "longest ms": max(wholes),
        "KB": size / 1e3,
    }


async def _poll(address: str, pid: int) -> tuple[list[int], float]:
    """The status of each answer once all pages are open, and the seconds of CPU that they took."""
    statuses: list[int] = []

    async def page(session: aiohttp.ClientSession, number: int) -> None:
        state = ""
        await asyncio.sleep(number * _PAUSE / _OPEN)
        while True:
            asked = {"If-None-Match": f'W/"{state}"'}
            async with session.get(address + _PATHS[number % len(_PATHS)], headers=asked) as answer:
                if found := _STATE.search(await answer.text()):
                    state = found[1]
                statuses.append(answer.status)
            await asyncio.sleep(_PAUSE)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=_OPEN)) as session:
        pages = [asyncio.create_task(page(session, number)) for number in range(_OPEN)]
        await asyncio.sleep(2 * _PAUSE)
        statuses.clear()
        before = cpu_microseconds(pid)
        await asyncio.sleep(_SECONDS)
        spent = (cpu_microseconds(pid) - before) / 1e6
        for task in pages:
            task.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
    return statuses, spent
