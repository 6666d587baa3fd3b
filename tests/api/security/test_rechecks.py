"""Answers that take long: streams and long polls end with the key of their request."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from api.observability.telemetry import Telemetry
from api.security import rechecks
from api.security.authenticator import FRESH_S, Authenticator, StoredKey
from api.security.keys import ApiKey
from api.security.middleware import ClientLimits, Gate
from api.security.scopes import Scope
from api.security.stored_keys import create_key, look_up
from api.store import Store
from planner.errors import StoreError
from tests.jobs import ServedJob
from tests.serving import serving

LIMITS = ClientLimits(read_rate=0, change_rate=0, refusal_rate=0, body_timeout_s=1)


class Answer:
    """An answer under way behind a gate: chunks go in on one side, and come out on the other while the key holds."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rechecks, "SURE_S", 0.0)
        self.now = 0.0
        self.is_down = False
        self.chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.has_begun = asyncio.Event()
        """Set when the request has passed the gate, however slow that was."""
        self._store = store
        authenticator = Authenticator(self._look_up, clock=lambda: self.now)
        self._gate = Gate(self._stream, authenticator=authenticator, limits=LIMITS, telemetry=Telemetry(version="0"))

    async def _look_up(self, key_id: str) -> StoredKey | None:
        if self.is_down:
            raise StoreError("down")
        return look_up(self._store, key_id)

    async def _stream(self, scope: Any, receive: Any, send: Any) -> None:
        """Begin to answer with the first chunk, as a long poll does, and go on until there are no more."""
        self.has_begun.set()
        first = await self.chunks.get()

        async def frames() -> Any:
            chunk = first
            while chunk is not None:
                yield chunk
                chunk = await self.chunks.get()

        await StreamingResponse(frames(), media_type="text/event-stream")(scope, receive, send)

    def begin(self, key: ApiKey, method: str = "GET") -> asyncio.Task[None]:
        """Send a request with a key."""
        path = "/v1/jobs/j/stream" if method == "GET" else "/v1/jobs/j/events"
        headers = [(b"authorization", f"Bearer {key.text}".encode())]
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": headers,
            "client": ("10.0.0.5", 1),
        }
        scope["asgi"] = {"version": "3.0", "spec_version": "2.4"}
        return asyncio.create_task(self._gate(scope, asyncio.Future, self.sent.put))


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """An empty store."""
    opened = Store(str(tmp_path / "replan.db"))
    yield opened
    opened.close()


def test_a_stream_ends_with_its_key(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a revoked key is not fresh any more the stream ends, and the next chunk is not sent."""
    key = create_key(store, name="a", scope=Scope.READ)

    async def check() -> None:
        answer = Answer(store, monkeypatch)
        task = answer.begin(key)
        for chunk in (b"1", b"2"):
            await answer.chunks.put(chunk)
        assert (await answer.sent.get())["status"] == 200
        assert [(await answer.sent.get())["body"] for _ in range(2)] == [b"1", b"2"]
        store.revoke_key(key.key_id)
        await answer.chunks.put(b"3")
        assert (await answer.sent.get())["body"] == b"3"
        answer.now = FRESH_S
        await answer.chunks.put(b"secret")
        await asyncio.wait_for(task, 120)
        assert answer.sent.get_nowait() == {"type": "http.response.body", "body": b"", "more_body": False}
        assert answer.sent.empty()

    asyncio.run(check())


def test_a_long_poll_whose_key_was_revoked_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that has not begun is the refusal that the key would get from the start."""
    key = create_key(store, name="a", scope=Scope.READ)

    async def check() -> None:
        answer = Answer(store, monkeypatch)
        task = answer.begin(key)
        await answer.has_begun.wait()
        store.revoke_key(key.key_id)
        answer.now = FRESH_S
        await answer.chunks.put(b"secret")
        await asyncio.wait_for(task, 120)
        start, body = answer.sent.get_nowait(), answer.sent.get_nowait()
        assert (start["status"], json.loads(body["body"])["code"]) == (401, "key_missing")

    asyncio.run(check())


def test_what_was_changed_is_told_whatever_became_of_the_key(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report may be stored by the time its key is revoked, so its answer is not withheld."""
    key = create_key(store, name="a", scope=Scope.REPORT)

    async def check() -> None:
        answer = Answer(store, monkeypatch)
        task = answer.begin(key, "POST")
        await answer.has_begun.wait()
        store.revoke_key(key.key_id)
        answer.now = FRESH_S
        for chunk in (b"done", None):
            await answer.chunks.put(chunk)
        await asyncio.wait_for(task, 120)
        assert (answer.sent.get_nowait()["status"], answer.sent.get_nowait()["body"]) == (200, b"done")

    asyncio.run(check())


def test_streams_outlive_a_store_that_is_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store does not answer, the key of a stream is taken at its last word."""
    key = create_key(store, name="a", scope=Scope.READ)

    async def check() -> None:
        answer = Answer(store, monkeypatch)
        task = answer.begin(key)
        await answer.has_begun.wait()
        answer.now, answer.is_down = 2 * FRESH_S, True
        for chunk in (b"1", None):
            await answer.chunks.put(chunk)
        await asyncio.wait_for(task, 120)
        assert (answer.sent.get_nowait()["status"], answer.sent.get_nowait()["body"]) == (200, b"1")

    asyncio.run(check())


@pytest.mark.slow
def test_a_served_stream_ends_with_its_key(tmp_path: Path) -> None:
    """A real server's stream ends soon after its key was revoked by another process, without the epoch that came then."""
    path = tmp_path / "replan.db"
    store = Store(str(path))
    reader, admin = (create_key(store, name=scope.label, scope=scope) for scope in (Scope.READ, Scope.ADMIN))
    with serving(path, environment={"REPLAN_REQUIRE_KEYS": "true", "REPLAN_HEARTBEAT_S": "60"}) as server:
        server.client.headers["Authorization"] = f"Bearer {admin.text}"
        job = ServedJob(server.client, "j")
        assert job.register().status_code == 201
        headers = {"Authorization": f"Bearer {reader.text}"}
        with server.client.stream("GET", f"{job.path}/stream", headers=headers) as answer:
            parts = answer.iter_text()
            text = ""
            while "id: 1\n" not in text:
                text += next(parts)
            store.revoke_key(reader.key_id)
            time.sleep(FRESH_S + rechecks.SURE_S)
            job.report("node_failed", "n06")
            text += "".join(parts)
        assert re.findall(r"^id: (\d+)$", text, re.MULTILINE) == ["1"]
        refused = server.client.get(f"{job.path}/epochs/current", headers=headers)
        assert refused.status_code == 401
    store.close()
