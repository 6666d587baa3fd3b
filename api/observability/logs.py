"""The server's log: one JSON object a line on standard error, with the ids of the request, job, epoch and key it is about.

Everything goes through the standard library's logging, so that the web server's and libraries' records look the same.
"""

from __future__ import annotations

import logging.config
from typing import Any

import structlog

from api.settings import LogFormat, LogLevel

_OURS = ("replan", "uvicorn")
_FIRST = ("timestamp", "level", "logger", "event", "request_id", "job_id", "epoch", "key_id")


def configure(level: LogLevel, log_format: LogFormat) -> None:
    """Set up logging of this process; libraries' records are shown from warnings on, ours from ``level`` on."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    # A text that came over the network may hold line breaks; both forms write them as escapes, so no line can be forged.
    last = structlog.processors.JSONRenderer() if log_format == "json" else _render_text
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "foreign_pre_chain": [structlog.stdlib.ExtraAdder(), *shared],
        "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _in_order, last],
    }
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": formatter},
            "handlers": {
                "stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}
            },
            "root": {"handlers": ["stderr"], "level": "WARNING"},
            "loggers": {name: {"level": level.upper()} for name in _OURS},
        }
    )


def _in_order(_logger: object, _method: str, record: Any) -> Any:
    record.pop("color_message", None)
    return {name: record[name] for name in _FIRST if name in record} | dict(record)


def _render_text(_logger: object, _method: str, record: Any) -> str:
    record = dict(record)
    trace = record.pop("exception", None)
    start = " ".join(str(record.pop(name, "")) for name in ("timestamp", "level", "logger"))
    event = str(record.pop("event", "")).encode("unicode_escape").decode("ascii")
    line = " ".join([f"{start}: {event}", *(f"{name}={value!r}" for name, value in record.items())])
    return line if trace is None else f"{line}\n{trace}"
