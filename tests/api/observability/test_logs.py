"""Logs: one JSON object a line with the ids it is about, whatever the texts hold."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import structlog
from starlette.testclient import TestClient

from api.app import create_app
from api.observability.logs import configure
from api.settings import LogFormat, LogLevel, Settings

FAKE = (sys.executable, "-P", str(Path(__file__).parents[1] / "fake_worker.py"))


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Records logged so far, of our own code."""
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [record for record in records if record["logger"].startswith("replan")]


def test_records_of_both_kinds_of_logger_look_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """Ids in the context, extra fields and tracebacks are parts of one object on one line."""
    configure("info", "json")
    structlog.contextvars.bind_contextvars(request_id="r1", job_id="llama", epoch=3)
    logging.getLogger("replan.test").warning("first\nline %d", 2, extra={"status": 5})
    structlog.get_logger("replan.test").info("second", keys=7)
    logging.getLogger("replan.test").debug("not shown")
    try:
        raise ValueError("secret\nplace")
    except ValueError:
        logging.getLogger("replan.test").exception("third")
    first, second, third = lines(capsys)
    ids = {"request_id": "r1", "job_id": "llama", "epoch": 3, "logger": "replan.test"}
    assert first.items() >= (ids | {"event": "first\nline 2", "level": "warning", "status": 5}).items()
    assert second.items() >= (ids | {"event": "second", "level": "info", "keys": 7}).items()
    assert "ValueError: secret" in third["exception"]
    assert list(first)[:4] == ["timestamp", "level", "logger", "event"]


def test_text_lines_cannot_be_forged(capsys: pytest.CaptureFixture[str]) -> None:
    """A line break in what a client sent does not begin a line in the form for people either."""
    configure("info", "text")
    logging.getLogger("replan.test").info("GET %s", "/a\n2026-01-01 info forged", extra={"client": "b\nc"})
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("level", get_args(LogLevel))
@pytest.mark.parametrize("log_format", get_args(LogFormat))
def test_every_choice_works(level: LogLevel, log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    """Each level shows itself and what is more severe."""
    configure(level, log_format)
    for name in get_args(LogLevel):
        getattr(logging.getLogger("replan.test"), name)("message")
    assert len(capsys.readouterr().err.splitlines()) == 1 + get_args(LogLevel).index(level)


def test_requests_are_logged_with_their_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plain X-Request-ID is kept and repeated, another is replaced; no query and no key is written."""
    configure("info", "json")
    settings = Settings(store=str(tmp_path / "replan.db"), solver_processes=1, require_keys=True)
    with TestClient(create_app(settings, worker_command=FAKE)) as client:
        capsys.readouterr()
        kept = client.post("/v1/jobs/llama/epochs/7/acknowledgements?token=hidden", headers={"X-Request-ID": "trace-1"})
        key = {"Authorization": "Bearer rpk_secret", "X-Request-ID": "a b\x7f"}
        made = client.get("/v1/plans/x", headers=key)
        client.get("/healthz")
        text = capsys.readouterr().err
    first, second = (json.loads(line) for line in text.splitlines() if "replan.api.access" in line)
    ids = {"request_id": "trace-1", "job_id": "llama", "epoch": 7, "status": 401, "client": "testclient"}
    assert first.items() >= ids.items()
    assert kept.headers["x-request-id"] == "trace-1"
    assert second["request_id"] == made.headers["x-request-id"] != "a b\x7f"
    assert "hidden" not in text
    assert "rpk_secret" not in text
