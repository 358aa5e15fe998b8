"""The login of the local dashboard in a real browser: the cookie and its recipients."""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from playwright.sync_api import expect

from extender.dashboard.local_login import LocalLogin
from extender.kube.connection import Connection
from tests.browser.conftest import Open, served
from tests.dashboard.sample import sample_source
from tests.kube.server import Reply, Server


def test_the_cookie_opens_our_pages_and_goes_to_no_other_port(
    opened: Open, connection: Connection, server: Server
) -> None:
    server.script.extend(Reply(body=b'{"status": {"allowed": true}}') for _ in range(50))
    printed: list[str] = []
    local_login = LocalLogin(connection, printed.append)
    sent: list[str | None] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["Cookie"])
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>x</title><link rel=icon href=data:,><a href='/again'>again</a>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    neighbour = ThreadingHTTPServer(("127.0.0.1", 0), Neighbour)
    thread = Thread(target=neighbour.serve_forever, args=(0.05,))
    thread.start()
    try:
        with served(
            sample_source(time.time()), identify=local_login.identify, login=local_login.login
        ) as address:
            path = local_login.path
            page = opened(address + path)
            expect(page.get_by_text("mnist-lab-3")).to_be_visible()
            page.get_by_role("link", name="llama-70b").first.click()
            page.get_by_role("button", name="Hold", exact=True).click()
            page.get_by_role("button", name="Yes").click()
            expect(page.get_by_role("button", name="Hold", exact=True)).to_be_visible()
            page.goto(f"http://127.0.0.1:{neighbour.server_port}/")
            page.get_by_role("link", name="again").click()
            expect(page.get_by_role("link", name="again")).to_be_visible()
            assert opened(address + path).get_by_role("heading", name="Log in").is_visible()
            page.goto(address + path)
            expect(page.get_by_text("mnist-lab-3")).to_be_visible()
    finally:
        neighbour.shutdown()
        thread.join()
        neighbour.server_close()
    assert sent == [None, None]
    assert len(printed) == 1
    assert [each.method for each in server.requests].count("PATCH") == 1
