"""`muster dashboard`: served on this machine, for one browser at a time, with the rights of a kubeconfig."""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from urllib.error import HTTPError

import msgspec
import pytest

from extender.api.summaries import VERSION
from tests.cli.cluster import Cluster

# In the foreground, as it were: what a shell starts in the background ignores Ctrl-C, with all below it.
_FOREGROUND = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
_PROGRAM = f"{_FOREGROUND}; from extender.cli import main; main(prog_name='muster')"


@pytest.fixture
def served(cluster: Cluster) -> Iterator["subprocess.Popen[str]"]:
    cluster.namespace("team")
    cluster.queue("q", state="Open")
    cluster.group("waits", "Pending", "NoRoom", "cpu: 8 needed, 4 left", queue="q")
    command = ["dashboard", "--listen", "127.0.0.1:0", "-n", "team", "--kubeconfig", str(cluster.kubeconfig)]
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def browser() -> urllib.request.OpenerDirector:
    jar = urllib.request.HTTPCookieProcessor(CookieJar())
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), jar)


def address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"Open (http://127\.0\.0\.1:\d+/[\w-]+)(/login\?token=\S+)\n", line)
    assert found, line
    return found[1] + found[2]


def test_an_address_lets_one_browser_in_and_ctrl_c_ends_it(served: "subprocess.Popen[str]") -> None:
    first, url, mine = browser(), address(served), None
    base = url.partition("/login")[0]
    with pytest.raises(HTTPError, match="401") as refused:
        browser().open(f"{base}/")
    refused.value.close()
    page = first.open(url, timeout=30).read().decode()
    assert "waits" in page
    assert "<title>Jobs · c · Muster</title>" in page
    assert 'title="here">c</span>' in page
    with pytest.raises(HTTPError, match="401") as refused:
        browser().open(url)
    refused.value.close()
    again = browser()
    again.open(address(served), timeout=30)
    for mine in (first, again):
        seen = msgspec.json.decode(mine.open(f"{base}/api/v1/overview", timeout=30).read())
        assert (seen["apiVersion"], seen["by"]) == (VERSION, "objects")
        assert [group["name"] for group in seen["groups"]] == ["waits"]
    served.send_signal(signal.SIGINT)
    assert served.wait(60) == 0
    assert served.stderr is not None
    assert served.stderr.read() == "It lets one browser in. Ctrl-C ends it.\n"


def test_the_dashboard_command_listens_on_loopback_only(cluster: Cluster) -> None:
    message = cluster.refuses("dashboard", "--listen", "0.0.0.0:0", status=2)
    assert message.endswith(
        "--listen: invalid value '0.0.0.0:0': must be a loopback address, since its users have your rights"
    )
    assert "'here': must be an address" in cluster.refuses("dashboard", "--listen", "here", status=2)
