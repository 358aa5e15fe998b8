"""Sign-in with a token: it admits its owner and no other user.

A token that the API server revokes is invalid within seconds; floods cost little.
"""

from contextlib import suppress
from threading import Barrier, Thread
from typing import Any

import pytest
from flask import g
from werkzeug.exceptions import TooManyRequests
from werkzeug.test import Client, TestResponse

from extender.dashboard.app import create_dashboard_app, csrf_token
from extender.dashboard.source import RightsUnknown
from extender.dashboard.token_login import COOKIE, MAX_TOKEN_BYTES, Sessions, TokenLogin, Tokens
from extender.dashboard.viewers import ExpiringCache, Grants
from extender.domain.admission.access import Subject
from extender.kube.access import Right
from extender.kube.connection import Connection
from extender.kube.endpoint import ApiEndpoint
from tests.clock import Clock
from tests.dashboard.authority import ANN, BOB, Authority
from tests.dashboard.standins import SomeSource, SomeViewer
from tests.kube.server import Reply, Server, status

LIST = Right("list", "scheduling.volcano.sh", "podgroups")


class LoginBench:
    """A dashboard in a cluster, and browsers."""

    def __init__(self, endpoint: ApiEndpoint) -> None:
        self.authority, self.clock = Authority(), Clock()
        token_login = TokenLogin(self.authority, endpoint, self.clock)
        self.app = create_dashboard_app(SomeSource(), token_login.identify, token_login.login)
        self.app.add_url_rule("/name", view_func=lambda: g.viewer.name)

    def browser(self) -> Client:
        return Client(self.app)

    def log_in(self, browser: Client, token: str = "of-ann", **fields: str) -> TestResponse:
        form = {"token": token, **fields}
        return browser.post("/login", data=form, base_url="https://muster.example")


@pytest.fixture
def bench(connection: Connection) -> LoginBench:
    return LoginBench(connection.endpoint)


def name(browser: Client, **headers: str) -> str:
    answer = browser.get("/name", headers=headers, base_url="https://muster.example")
    return answer.text if answer.status_code == 200 else str(answer.status_code)


def test_a_token_becomes_a_cookie_that_only_browsers_keep_and_only_for_us(bench: LoginBench) -> None:
    answer = bench.log_in(bench.browser())
    cookie = answer.headers["Set-Cookie"]
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    parts = set(cookie.split("; ")[1:])
    assert parts == {"Secure", "HttpOnly", "Path=/", "SameSite=Strict"}
    assert cookie.startswith("__Host-")
    assert "of-ann" not in cookie


def test_each_browser_is_the_user_of_its_token(bench: LoginBench) -> None:
    anns, bobs, nobodys = bench.browser(), bench.browser(), bench.browser()
    bench.log_in(anns)
    bench.log_in(bobs, "of-bob")
    assert bench.log_in(nobodys, "of-nobody").status_code == 401
    assert [name(each) for each in (anns, bobs, nobodys)] == ["ann", "bob", "401"]


def test_a_proxy_sends_the_token_with_each_request(bench: LoginBench) -> None:
    browser = bench.browser()
    assert name(browser, Authorization="Bearer of-ann") == "ann"
    assert name(browser, Authorization="bearer  of-bob") == "bob"
    assert name(browser, Authorization="Bearer of-nobody") == "401"
    assert name(browser, Authorization="Basic of-ann") == "401"
    assert name(browser) == "401"


def test_a_token_that_is_sent_counts_and_not_the_cookie(bench: LoginBench) -> None:
    browser = bench.browser()
    bench.log_in(browser)
    assert name(browser, Authorization="Bearer of-bob") == "bob"
    assert name(browser, Authorization="Bearer of-nobody") == "401"
    assert name(browser) == "ann"


def test_a_logged_out_session_has_ended(bench: LoginBench) -> None:
    browser, thief = bench.browser(), Client(bench.app, use_cookies=False)
    cookie = bench.log_in(browser).headers["Set-Cookie"].partition("=")[2].partition(";")[0]
    assert name(thief, Cookie=f"{COOKIE}={cookie}") == "ann"
    browser.post("/logout", base_url="https://muster.example")
    assert (name(browser), name(thief, Cookie=f"{COOKIE}={cookie}")) == ("401", "401")


def test_a_token_that_ends_ends_its_sessions_within_seconds(bench: LoginBench) -> None:
    browser = bench.browser()
    bench.log_in(browser)
    del bench.authority.tokens["of-ann"]
    bench.clock.now += 5
    assert name(browser) == "401"
    bench.authority.tokens["of-ann"] = ANN
    bench.clock.now += 60
    assert name(browser) == "401"  # the session has gone: the token has to be given again


def test_a_user_with_a_session_can_end_it(bench: LoginBench) -> None:
    browser = bench.browser()
    bench.log_in(browser)
    assert "Log out" in browser.get("/queues", base_url="https://muster.example").text
    sent = {"Authorization": "Bearer of-bob"}
    assert "Log out" not in bench.browser().get("/queues", headers=sent).text


def test_a_session_lasts_half_a_day(bench: LoginBench) -> None:
    browser = bench.browser()
    bench.log_in(browser)
    bench.clock.now += 12 * 3600 - 1
    assert name(browser) == "ann"
    bench.clock.now += 1
    assert name(browser) == "401"


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("/queues?sort=name", "/queues?sort=name"),
        ("/", "/"),
        ("", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\\b", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: b=c", "/"),
        ("/\t/evil.example", "/"),
        ("/ä", "/"),
    ],
)
def test_a_login_redirects_only_to_pages_of_this_site(bench: LoginBench, asked: str, place: str) -> None:
    assert bench.log_in(bench.browser(), to=asked).headers["Location"] == place


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_other_sites_cannot_log_users_in_or_out(
    bench: LoginBench, path: str, headers: dict[str, str]
) -> None:
    answer = bench.browser().post(path, data={"token": "of-ann"}, headers=headers)
    assert (answer.status_code, answer.headers.get("Set-Cookie")) == (403, None)


def test_a_token_is_printable_and_fits_into_a_header(bench: LoginBench) -> None:
    bench.authority.tokens.update(dict.fromkeys(("a b", "a\r\nb", "ä", "x" * (MAX_TOKEN_BYTES + 1)), ANN))
    for token in ("a b", "a\r\nb", "ä", "", "x" * (MAX_TOKEN_BYTES + 1)):
        assert bench.log_in(bench.browser(), token).status_code == 401
    assert not bench.authority.asked


def test_no_user_is_taken_for_another_while_the_api_server_does_not_answer(bench: LoginBench) -> None:
    browser = bench.browser()
    bench.log_in(browser)
    bench.clock.now += 5
    bench.authority.answers = False
    assert name(browser) == "503"
    bench.authority.answers = True
    assert name(browser) == "ann"


def test_a_change_is_sent_with_the_users_token_and_without_credentials_of_muster(
    bench: LoginBench, server: Server
) -> None:
    browser = bench.browser()
    session = bench.log_in(browser).headers["Set-Cookie"].partition("=")[2].partition(";")[0]
    bench.authority.rights.add(("ann", "patch", "team"))
    server.script.extend([Reply(), status(401)])
    form = {"csrf": csrf_token(SomeViewer(secret=session)), "confirmed": "yes"}
    for code in (303, 401):  # the second time the API server knows the token no more: it is not tried again
        answer = browser.post(
            "/groups/team/train/hold",
            data=form,
            base_url="https://muster.example",
            headers={"X-Remote-User": "root"},
        )
        assert answer.status_code == code
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer of-ann"] * 2
    assert not any(
        "impersonate" in name or "remote" in name for request in server.requests for name in request.headers
    )
    assert server.requests[0].path.endswith("/namespaces/team/podgroups/train")


# ---- floods


def test_invalid_tokens_cost_few_reviews_and_do_not_lock_out_users_with_a_session() -> None:
    authority, clock = Authority(), Clock()
    tokens = Tokens(authority.owner_of, clock)
    assert tokens.owner("of-ann", "10.0.0.1") == ANN
    refused = 0
    for second in range(20):
        clock.now += 1
        for number in range(500):
            try:
                assert tokens.owner(f"false-{second}-{number}", f"10.1.0.{number}") is None
            except TooManyRequests:
                refused += 1
        assert tokens.owner("of-ann", "10.0.0.1") == ANN
    assert authority.asked["token"] <= 20 * 10 + 20 + 20 / 4 + 2
    assert refused > 9_000


def test_invalid_tokens_from_one_address_leave_reviews_to_others() -> None:
    authority, clock = Authority(), Clock()
    tokens = Tokens(authority.owner_of, clock)
    for second in range(10):
        clock.now += 1
        for number in range(100):
            with suppress(TooManyRequests):
                tokens.owner(f"false-{second}-{number}", "10.0.0.9")
    assert tokens.owner("of-bob", "10.0.0.1") == BOB


def test_all_users_of_a_proxy_log_in_at_once() -> None:
    authority = Authority(tokens={f"token-{number}": ANN for number in range(500)})
    tokens = Tokens(authority.owner_of, Clock())
    assert all(tokens.owner(token, "10.0.0.1") == ANN for token in authority.tokens)


def test_a_false_token_again_and_again_is_asked_about_once() -> None:
    authority, clock = Authority(), Clock()
    tokens = Tokens(authority.owner_of, clock)
    for _ in range(100):
        assert tokens.owner("false", "10.0.0.9") is None
    assert authority.asked["token"] == 1


def test_sessions_are_bounded_and_those_of_one_do_not_end_those_of_others() -> None:
    sessions = Sessions(Clock())
    anns = sessions.open("ann", "of-ann")
    bobs = [sessions.open("bob", "of-bob") for _ in range(3000)]
    assert sessions.token(anns) == "of-ann"
    assert sum(bool(sessions.token(each)) for each in bobs) == 16
    assert all(map(sessions.token, bobs[-16:]))


# ---- rights


def test_a_right_that_is_withdrawn_has_gone_within_seconds_and_a_new_one_comes() -> None:
    authority, clock = Authority(rights={("ann", "list", "team")}), Clock()
    rights = Grants(authority.grants, clock)
    team = LIST._replace(namespace="team")
    assert rights.is_granted(ANN, team)
    authority.rights.clear()
    clock.now += 4
    assert not rights.is_granted(ANN, team)
    authority.rights.add(("ann", "list", "team"))
    clock.now += 60
    assert rights.is_granted(ANN, team)


def test_a_right_of_one_user_is_no_right_of_another() -> None:
    rights = Grants(Authority(rights={("ann", "list", "team")}).grants, Clock())
    team = LIST._replace(namespace="team")
    others = (BOB, ANN.__class__("ann"), ANN.__class__("Ann", groups=ANN.groups))
    assert rights.is_granted(ANN, team)
    assert not rights.is_granted(BOB, team)
    assert not rights.is_granted(ANN, team._replace(verb="get"))
    assert not rights.is_granted(ANN, team._replace(namespace="TEAM"))
    assert rights.is_granted(others[1], team)  # the same name: the authority says so, asked for itself


def test_a_page_of_many_namespaces_asks_about_each_once_and_first_about_all() -> None:
    authority, clock = Authority(rights={("ann", "list", "n7"), ("bob", "list", "")}), Clock()
    rights, names = Grants(authority.grants, clock), [f"n{number}" for number in range(500)]
    for _ in range(3):
        assert rights.namespaces_with_right(ANN, LIST, names) == {"n7"}
        assert rights.namespaces_with_right(BOB, LIST, names) == set(names)
    assert authority.asked.total() == 1 + 500 + 1
    assert authority.asked[("bob", "")] == 1


def test_more_than_a_thousand_namespaces_are_not_asked_about() -> None:
    authority = Authority()
    assert not Grants(authority.grants, Clock()).namespaces_with_right(
        ANN, LIST, [f"n{each}" for each in range(5000)]
    )
    assert authority.asked.total() == 1 + 1000


def test_text_that_cannot_be_a_name_is_not_looked_up() -> None:
    authority = Authority()
    assert not Grants(authority.grants, Clock()).is_granted(ANN, LIST._replace(namespace="n" * 3000))
    assert not authority.asked


def test_a_user_with_many_names_causes_a_bounded_number_of_reviews() -> None:
    authority, clock = Authority(), Clock()
    rights, names = Grants(authority.grants, clock), [f"n{number}" for number in range(500)]
    for number in range(20):  # as many accounts as a tenant likes
        clock.now += 0.1
        with suppress(RightsUnknown):
            rights.namespaces_with_right(Subject(f"account-{number}"), LIST, names)
    assert authority.asked.total() <= 3000 + 10 * 500
    clock.now += 60
    assert not rights.namespaces_with_right(BOB, LIST, names)


def test_an_unanswered_access_review_grants_no_right() -> None:
    rights = Grants(Authority(answers=False).grants, Clock())
    with pytest.raises(RightsUnknown, match="timed out"):
        rights.namespaces_with_right(ANN, LIST, ["team"])


def test_threads_share_a_question_and_its_fault() -> None:
    both, calls = Barrier(2, timeout=10), list[int]()
    remembered: ExpiringCache[str, int] = ExpiringCache(10, lambda _: 5.0, Clock())
    found: list[Any] = []

    def slow() -> int:
        calls.append(1)
        both.wait()
        return 7

    first = Thread(target=lambda: found.append(remembered.get("key", slow)))
    first.start()
    while not calls:
        pass
    second = Thread(target=lambda: found.append(remembered.get("key", slow)))
    second.start()
    both.wait()
    first.join(10)
    second.join(10)
    assert (found, len(calls)) == ([7, 7], 1)
