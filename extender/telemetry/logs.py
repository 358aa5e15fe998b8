"""Log lines on standard error, as text for users or as JSON for programs.

All lines pass the root logger of the standard library, so lines of gunicorn and urllib3, and warnings of
Python, have the same form.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import msgspec
import structlog
from structlog.contextvars import bind_contextvars, reset_contextvars
from structlog.typing import EventDict, Processor, WrappedLogger

_COMMON: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
)
_VERBOSE_LOGGERS = ("urllib3", "werkzeug", "kubernetes")  # loggers with too many debug lines


def set_up(form: str = "", level: str = "info", stream: TextIO = sys.stderr) -> None:
    """Write lines of at least `level` to `stream`.

    `form` is text or json. By default, the form is text on a terminal and json elsewhere.
    """
    form = form or ("text" if stream.isatty() else "json")
    handler = logging.StreamHandler(stream)
    colors = stream.isatty()
    if form == "json":
        final: list[Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            _message_first,
            structlog.processors.JSONRenderer(
                serializer=lambda line, **_: msgspec.json.encode(line, enc_hook=str).decode()
            ),
        ]
    else:
        plain = structlog.dev.plain_traceback
        final = [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[remove_meta, *final], foreign_pre_chain=list(_COMMON))
    )
    # Lines do not name their source or thread, because the look-up took a quarter of the time.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in _VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *_COMMON,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _message_first(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Return the fields of a line with time, level and message first."""
    first_fields = {key: line.pop(key) for key in ("timestamp", "level", "message") if key in line}
    return {**first_fields, **line}


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module. It may be created before `set_up` is called."""
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return bound


# structlog creates the context variable of a name when the name is first bound. If two threads do this at the
# same time, they create two variables, and neither thread can reset its value. So all names are bound here.
reset_contextvars(**bind_contextvars(pod="", group="", queue=""))


@contextmanager
def bound_context(*, pod: str = "", group: str = "", queue: str = "") -> Iterator[None]:
    """Add the pod, the group and the queue to every line that is logged inside the block."""
    names = {"pod": pod, "group": group, "queue": queue}
    # structlog's own bound_contextvars would copy the whole context on every call of a verb.
    tokens = bind_contextvars(**{kind: name for kind, name in names.items() if name})
    try:
        yield
    finally:
        reset_contextvars(**tokens)
