"""Gives every request an id, binds it to what is logged, and counts and logs how the request was answered."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, clear_contextvars

from api.observability.telemetry import Telemetry
from api.observability.waiting import waited_s

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_JOBS = "/v1/jobs/"
_MAX_LOGGED = 200
_LOG = logging.getLogger("replan.api.access")
GONE = 499
"""Status under which a request is counted whose client left before its answer began."""


class RequestObserver:
    """Outermost middleware. A client's own ``X-Request-ID`` is kept where it is a plain word; the answer repeats it.

    Reads that went well are logged at level debug only: thousands of workers poll.

    Parameters
    ----------
    app
        What is observed.
    telemetry
        Where requests are counted.
    """

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count and log its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        clear_contextvars()
        bind_contextvars(request_id=request_id, **_ids_of(scope["path"]))
        header = (b"x-request-id", request_id.encode("ascii"))
        status = None

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        started = time.perf_counter()
        try:
            await self._app(scope, receive, observed)
        except Exception:
            status = 500
            raise
        finally:
            self._finish(scope, GONE if status is None else status, time.perf_counter() - started)

    def _finish(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"]
        route = getattr(scope.get("route"), "path", "unmatched")
        self._telemetry.request_finished(
            method=method, route=route, status=status, seconds=seconds, waited_s=waited_s(scope)
        )
        level = logging.DEBUG if method in ("GET", "HEAD") and status < 400 else logging.INFO
        if _LOG.isEnabledFor(level):
            client = scope["client"][0] if scope.get("client") else None
            principal = scope.get("state", {}).get("principal")
            if principal is not None:
                bind_contextvars(key_id=principal.key_id)
            path = scope["path"][:_MAX_LOGGED]
            extra = {"status": status, "client": client, "milliseconds": round(seconds * 1000, 2)}
            _LOG.log(level, "%s %s", method, path, extra=extra)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode("ascii"))
    return uuid.uuid4().hex


def _ids_of(path: str) -> dict[str, Any]:
    """Job and epoch that a path names."""
    if not path.startswith(_JOBS):
        return {}
    job_id, _, rest = path[len(_JOBS) :].partition("/")
    ids: dict[str, Any] = {"job_id": job_id[:_MAX_LOGGED]}
    epoch = rest.removeprefix("epochs/").partition("/")[0]
    if rest.startswith("epochs/") and epoch.isdecimal() and len(epoch) < 12:
        ids["epoch"] = int(epoch)
    return ids
