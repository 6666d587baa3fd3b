"""The gate before every route: keys, scopes, hosts, rates and slow bodies, on the whole application."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.security.addresses import is_loopback_host_header
from api.security.keys import ApiKey, new_key
from api.security.middleware import MAX_PATH_LENGTH
from api.security.scopes import Scope
from api.security.stored_keys import create_key
from api.settings import Settings
from api.store import Store

FAKE = (sys.executable, "-P", str(Path(__file__).parents[1] / "fake_worker.py"))
FAR = "10.0.0.5"


class Bench:
    """A running application, and clients of it at any address and with any key."""

    def __init__(self, app: Any, keys: dict[Scope, ApiKey]) -> None:
        self.app = app
        self.keys = keys

    async def send(
        self,
        method: str,
        path: str,
        *,
        key: ApiKey | str | None = None,
        address: str = FAR,
        host: str = "replan.example",
        headers: dict[str, str] | None = None,
        **body: Any,
    ) -> httpx2.Response:
        """Send one request."""
        sent = dict(headers or {})
        if key is not None:
            sent["Authorization"] = f"Bearer {key.text}" if isinstance(key, ApiKey) else key
        transport = httpx2.ASGITransport(app=self.app, client=(address, 1234))
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.request(method, path, headers=sent, **body)

    async def code(self, method: str, path: str, **options: Any) -> str | int:
        """Code of a problem, or the status of another answer."""
        answer = await self.send(method, path, **options)
        if answer.headers.get("content-type") != "application/problem+json":
            return answer.status_code
        document: dict[str, Any] = answer.json()
        assert document["status"] == answer.status_code
        return str(document["code"])


@asynccontextmanager
async def running(tmp_path: Path, **settings: Any) -> AsyncIterator[Bench]:
    """An application with a key of each scope; listens beyond loopback unless told otherwise."""
    store = Store(str(tmp_path / "replan.db"))
    keys = {scope: create_key(store, name=scope.label, scope=scope) for scope in Scope}
    store.close()
    chosen = {"store": str(tmp_path / "replan.db"), "host": "0.0.0.0", "solver_processes": 1} | settings
    app = create_app(Settings(**chosen), worker_command=FAKE)
    async with app.router.lifespan_context(app):
        yield Bench(app, keys)


def test_every_operation_but_health_and_the_page_s_files_needs_a_key(tmp_path: Path) -> None:
    """Without a key, with a wrong one, or with another scheme each operation is 401 and says how to come with one."""

    async def check() -> None:
        async with running(tmp_path, refusal_rate=0) as bench:
            paths = bench.app.openapi()["paths"]
            operations = {(method.upper(), path) for path, item in paths.items() for method in item}
            open_to_all = {("GET", "/healthz"), ("GET", "/"), ("GET", "/page/{name}")}
            for method, path in (operations - open_to_all) | {("GET", "/openapi.json"), ("GET", "/nothing")}:
                for key in (
                    None,
                    new_key(),
                    "Basic cm9vdDo=",
                    "Bearer",
                    "Bearer rpk_x",
                    f"{bench.keys[Scope.ADMIN].text}",
                ):
                    answer = await bench.send(method, path, key=key)
                    assert (answer.status_code, answer.json()["code"]) == (401, "key_missing"), (method, path, key)
                    assert answer.headers["www-authenticate"].startswith("Bearer")
            assert await bench.code("GET", "/healthz") == 200

    asyncio.run(check())


def test_scopes_include_those_below(tmp_path: Path) -> None:
    """Each key may do what its scope and the smaller ones allow, and is told which scope it lacks for the rest."""

    async def check() -> None:
        async with running(tmp_path) as bench:
            for method, path, least in (
                ("GET", "/v1/plans/x", Scope.READ),
                ("POST", "/v1/plans", Scope.REPORT),
                ("GET", "/nothing", Scope.ADMIN),
            ):
                for scope, key in bench.keys.items():
                    found = await bench.code(method, path, key=key)
                    assert (found == "scope_too_small") == (scope < least), (path, scope, found)
            answer = await bench.send("POST", "/v1/plans", key=bench.keys[Scope.READ])
            assert answer.status_code == 403
            assert "report" in answer.json()["detail"]

    asyncio.run(check())


def test_readiness_and_metrics_are_open_to_this_machine_alone(tmp_path: Path) -> None:
    """A peer on loopback needs no key for them, unless a proxy sent it; others need one; other routes are never open."""

    async def check() -> None:
        async with running(tmp_path) as bench:
            for path in ("/readyz", "/metrics"):
                for peer in ("127.0.0.1", "::1"):
                    assert await bench.code("GET", path, address=peer) in (200, 503)
                    for header in ("X-Forwarded-For", "Forwarded"):
                        assert (
                            await bench.code("GET", path, address=peer, headers={header: "10.0.0.5"}) == "key_missing"
                        )
                assert await bench.code("GET", path) == "key_missing"
                assert await bench.code("GET", path, key=bench.keys[Scope.READ]) in (200, 503)
            assert await bench.code("GET", "/v1/plans/x", address="127.0.0.1") == "key_missing"

    asyncio.run(check())


def test_a_server_without_keys_answers_to_loopback_names_only(tmp_path: Path) -> None:
    """A page whose name was led to this machine is refused; health, and in-process clients, are not asked by name."""

    async def check() -> None:
        async with running(tmp_path, host="127.0.0.1") as bench:
            for host in ("localhost:8080", "127.0.0.1:8080", "[::1]:8080"):
                assert await bench.code("GET", "/v1/plans/x", address="127.0.0.1", host=host) == "not_found"
            assert await bench.code("GET", "/v1/plans/x", address="127.0.0.1", host="evil.example") == "host_refused"
            assert await bench.code("GET", "/healthz", address="127.0.0.1", host="evil.example") == 200
            assert await bench.code("GET", "/v1/plans/x", address="testclient", host="testserver") == "not_found"

    asyncio.run(check())


def test_rates_are_counted_by_key_and_by_kind(tmp_path: Path) -> None:
    """Over its rate a key gets 429 with Retry-After; other keys, the other kind of request and health go on."""

    async def check() -> None:
        async with running(tmp_path, read_rate=5, change_rate=2) as bench:
            admin, report = bench.keys[Scope.ADMIN], bench.keys[Scope.REPORT]
            reads = [await bench.code("GET", "/v1/plans/x", key=admin, address=f"10.0.0.{n}") for n in range(7)]
            assert reads == ["not_found"] * 5 + ["rate_limited"] * 2
            answer = await bench.send("GET", "/v1/plans/x", key=admin)
            assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (429, True)
            changes = [await bench.code("POST", "/v1/plans", key=admin) for _ in range(3)]
            assert changes == ["media_type_unsupported"] * 2 + ["rate_limited"]
            assert await bench.code("GET", "/v1/plans/x", key=report) == "not_found"
            assert await bench.code("GET", "/healthz") == 200

    asyncio.run(check())


def test_bad_keys_are_limited_by_address_without_locking_good_ones_out(tmp_path: Path) -> None:
    """An address that sends bad keys gets 429, other addresses do not, nor does a key at the same address that was good."""

    async def check() -> None:
        async with running(tmp_path, refusal_rate=3) as bench:
            good = bench.keys[Scope.READ]
            assert await bench.code("GET", "/v1/plans/x", key=good) == "not_found"
            tries = [await bench.code("GET", "/v1/plans/x", key=new_key()) for _ in range(5)]
            assert tries == ["key_missing"] * 3 + ["rate_limited"] * 2
            assert await bench.code("GET", "/v1/plans/x") == "rate_limited"
            assert await bench.code("GET", "/v1/plans/x", key=bench.keys[Scope.ADMIN]) == "rate_limited"
            assert await bench.code("GET", "/v1/plans/x", key=good) == "not_found"
            assert await bench.code("GET", "/v1/plans/x", key=new_key(), address="10.0.0.6") == "key_missing"

    asyncio.run(check())


def test_a_refused_body_ends_the_connection(tmp_path: Path) -> None:
    """The answer to a request that is refused before its body was read says that the connection ends; others do not."""

    async def check() -> None:
        async with running(tmp_path) as bench:
            assert (await bench.send("POST", "/v1/plans", content=b"{}")).headers["connection"] == "close"
            assert "connection" not in (await bench.send("GET", "/v1/plans/x")).headers

    asyncio.run(check())


def test_a_slow_body_is_told_so(tmp_path: Path) -> None:
    """A body that does not arrive in time is 408, and the connection ends."""

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    async def check() -> None:
        async with running(tmp_path, body_timeout_s=0.05) as bench:
            headers = {"Content-Type": "application/json"}
            key = bench.keys[Scope.REPORT]
            answer = await bench.send("POST", "/v1/plans", key=key, headers=headers, content=slowly())
            assert (answer.status_code, answer.json()["code"]) == (408, "request_timeout")
            assert answer.headers["connection"] == "close"

    asyncio.run(check())


def test_websockets_are_closed(tmp_path: Path) -> None:
    """What is not HTTP does not pass the gate."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def check() -> None:
        async with running(tmp_path) as bench:
            scope = {"type": "websocket", "path": "/healthz", "headers": [], "client": ("127.0.0.1", 1)}
            await bench.app(scope, receive, send)

    asyncio.run(check())
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.parametrize("has_keys", [True, False])
def test_the_document_tells_what_the_gate_does(tmp_path: Path, has_keys: bool) -> None:
    """Each operation names its scope and the refusals it may meet, where there are keys."""
    document = create_app(Settings(host="0.0.0.0" if has_keys else "127.0.0.1")).openapi()
    assert ("securitySchemes" in document["components"]) == has_keys
    plan = document["paths"]["/v1/plans"]["post"]
    assert plan.get("x-replan-scope") == ("report" if has_keys else None)
    assert {"403", "408", "429"} <= plan["responses"].keys()
    assert ("401" in plan["responses"]) == has_keys
    assert "401" not in document["paths"]["/healthz"]["get"]["responses"]


def test_nothing_of_a_long_path_or_name_is_kept(tmp_path: Path) -> None:
    """Paths beyond the limit are 414 with and without a key, and thousands of long ones and of long hosts take no memory."""

    async def check() -> None:
        async with running(tmp_path) as bench:
            for key in (None, bench.keys[Scope.READ]):
                assert await bench.code("GET", "/" + "a" * MAX_PATH_LENGTH, key=key) == "path_too_long"
            assert await bench.code("GET", "/" + "a" * (MAX_PATH_LENGTH - 1)) == "key_missing"
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                for number in range(200):
                    await bench.code("GET", f"/{number}{'a' * 60_000}")
                    is_loopback_host_header(f"{number}{'a' * 60_000}")
                gc.collect()
                after, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert after - before < 2**20  # 200 paths of 60 kB are 12 MB

    asyncio.run(check())
