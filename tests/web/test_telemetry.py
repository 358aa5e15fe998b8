"""Log lines and metrics, as they leave the process."""

import io
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import structlog
from prometheus_client import REGISTRY

from extender.telemetry import metrics
from extender.telemetry.logs import bound_context, logger, set_up


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]


def test_every_log_line_names_its_object() -> None:
    stream = io.StringIO()
    set_up("json", "info", stream)
    log = logger("extender.example")
    with bound_context(group="n/g", queue="q"), bound_context(pod="n/p"):
        log.info("placed", node="a")
        logging.getLogger("elsewhere").warning("slow: %s s", 3)
    log.info("done")
    first, second, third = lines(stream)
    expected = {"pod": "n/p", "group": "n/g", "queue": "q"}
    assert first.items() >= {"message": "placed", "node": "a", "level": "info", **expected}.items()
    assert (
        second.items()
        >= {"message": "slow: 3 s", "logger": "elsewhere", "level": "warning", **expected}.items()
    )
    assert not third.keys() & expected.keys()
    assert all(line["timestamp"].endswith("Z") for line in (first, second, third))


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    set_up("json", "warning", stream)
    logger("extender.example").info("nothing")
    logging.getLogger("urllib3").debug("nothing")
    logger("extender.example").error("something")
    assert [line["message"] for line in lines(stream)] == ["something"]


def test_an_exception_stays_one_line_of_json() -> None:
    stream = io.StringIO()
    set_up("json", "info", stream)
    try:
        raise ValueError("why")
    except ValueError:
        logger("extender.example").exception("failed", what=object)
    [line] = lines(stream)
    assert "ValueError: why" in line["exception"]


def test_a_line_of_json_begins_with_its_time_level_and_message() -> None:
    stream = io.StringIO()
    set_up("json", "info", stream)
    logger("extender.example").warning("late", node="a")
    assert [*lines(stream)[0]][:3] == ["timestamp", "level", "message"]


def test_python_s_warnings_are_lines_like_others() -> None:
    stream = io.StringIO()
    set_up("json", "info", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "old" in lines(stream)[0]["message"]


@pytest.mark.parametrize(("stream", "colored"), [(Terminal(), True), (io.StringIO(), False)])
def test_colors_are_for_terminals(stream: io.StringIO, colored: bool) -> None:
    set_up("text", "info", stream)
    logger("extender.example").info("hello", node="a")
    assert "hello" in stream.getvalue()
    assert ("\x1b[" in stream.getvalue()) is colored


def test_a_stream_that_is_no_terminal_gets_json_by_default() -> None:
    stream = io.StringIO()
    set_up(stream=stream)
    logger("extender.example").info("hello")
    assert lines(stream)[0]["message"] == "hello"


def test_a_changed_verdict_is_counted_once() -> None:
    metrics.show_groups({("Waiting", "NoRoom"): 2, ("Running", ""): 1})
    metrics.show_groups({("Running", ""): 3})
    labels = [{"verdict": "Waiting", "reason": "NoRoom"}, {"verdict": "Running", "reason": ""}]
    assert [REGISTRY.get_sample_value("muster_groups", label) for label in labels] == [0, 3]


def test_every_metric_of_ours_has_our_prefix_and_a_meaning() -> None:
    own = [value for value in vars(metrics).values() if hasattr(value, "describe")]
    families = [family for metric in own if not isinstance(metric, type) for family in metric.describe()]
    assert len(families) >= 20
    assert all(family.name.startswith("muster_") and family.documentation for family in families)


def test_many_threads_may_log_about_a_new_object_at_once() -> None:
    """Create the context variables early: two threads that create the same one could not reset it."""
    program = (
        "from extender.telemetry import logs; from structlog import contextvars as c; print(*c._CONTEXT_VARS)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert {*done.stdout.split()} == {f"structlog_{name}" for name in ("pod", "group", "queue")}


def test_no_label_can_grow_without_bound() -> None:
    """Show only the first queues by name, and no deleted one."""
    known = {"verb", "outcome", "reason", "verdict", "resource", "path", "state", "port", "part", "interval"}
    known |= {"queue", "column", "cause", "version", "python"}  # the last two of one series
    own = [value for value in vars(metrics).values() if hasattr(value, "_labelnames")]
    assert {label for metric in own for label in metric._labelnames} == known
