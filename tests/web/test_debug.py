"""The debug port's router."""

import threading
from typing import Any

from extender import __version__
from extender.api.configuration import Configuration, as_document
from extender.web.debug import ENDPOINTS, create_debug_app
from tests.rows import each_of


def group(namespace: str, name: str) -> object:
    return {"name": f"{namespace}/{name}"} if name == "known" else None


def broken() -> object:
    raise LookupError("secret")


APP = create_debug_app(
    {
        "queues": lambda: [{"name": "default", "weight": 1}],
        "podgroup": group,
        "decisions": lambda limit: {"limit": limit},
        "history": lambda **query: query,
        "why": lambda namespace, name, terms: {"terms": terms},
        "config": lambda: as_document(Configuration()),
        "nodes": broken,
    }
).test_client()


def get(path: str) -> Any:
    answer = APP.get(f"/debug/{path}")
    return answer.status_code, answer.get_json()


def test_the_list_names_every_endpoint_and_what_it_shows() -> None:
    status, listed = get("")
    assert status == 200
    assert listed == {f"/debug/{endpoint.path}": endpoint.help for endpoint in ENDPOINTS}


def test_a_debug_page_is_shown_unchanged() -> None:
    assert get("queues") == (200, [{"name": "default", "weight": 1}])
    assert get("podgroups/n/known") == (200, {"name": "n/known"})
    assert get("config")[1]["listen"] == "127.0.0.1:8281"
    assert get("version")[1]["muster"] == __version__


def test_a_missing_object_is_named() -> None:
    assert get("podgroups/n/other") == (404, {"error": "Muster knows no podgroup n/other"})
    assert get("nothing")[0] == 404
    assert get("held") == (404, {"error": "This part of Muster does not run here"})


@each_of(("", 100), ("?limit=1", 1), ("?limit=1000", 1000))
def test_the_number_of_decisions_can_be_limited(query: str, limit: int) -> None:
    assert get(f"decisions{query}") == (200, {"limit": limit})


@each_of(("", []), ("?what-if=nodes=%2B2", ["nodes=+2"]), ("?what-if=a=1&what-if=b=2:3", ["a=1", "b=2:3"]))
def test_terms_are_passed_on_as_they_are(query: str, terms: list[str]) -> None:
    assert get(f"why/team/g{query}") == (200, {"terms": terms})


def test_parameters_of_the_history_are_passed_on() -> None:
    none = {"by": "", "since": "", "until": ""}
    assert get("history") == (200, none)
    assert get("history?since=2h&by=user&other=1") == (200, {**none, "since": "2h", "by": "user"})


@each_of("0", "1001", "-1", "ten", "", "00000100000", "٣")
def test_an_invalid_limit_is_refused_by_name(limit: str) -> None:
    status, answer = get(f"decisions?limit={limit}")
    assert status == 400
    assert answer["error"] == f"limit: invalid value {limit!r}: must be a whole number from 1 to 1000"


def test_the_port_is_read_only() -> None:
    for path in ("queues", "threads", ""):
        assert APP.post(f"/debug/{path}").status_code == 405


def test_a_failed_debug_page_hides_the_exception() -> None:
    status, answer = get("nodes")
    assert status == 500
    assert "secret" not in answer["error"]


def test_threads_that_wait_at_one_place_are_counted_together() -> None:
    barrier, end = threading.Barrier(4), threading.Event()

    def wait() -> None:
        barrier.wait()
        end.wait()

    waiting = [threading.Thread(target=wait, name=f"waiting-{number}") for number in range(3)]
    for thread in waiting:
        thread.start()
    barrier.wait()
    entries = get("threads")[1]
    shown = {name: entry for entry in entries for name in entry["threads"]}
    end.set()
    for thread in waiting:
        thread.join()
    for number in range(3):
        assert any(f"{wait.__name__}" in line for line in shown[f"waiting-{number}"]["stack"])
    assert all(entry["count"] == len(entry["threads"]) for entry in entries)  # several may have one name
