"""Every status that the OpenAPI document names for an operation is answered by it, each with a code that the manual has."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2

from api.app import create_app
from api.security.keys import ApiKey
from api.security.scopes import Scope
from api.security.stored_keys import create_key
from api.settings import Settings
from api.store import Store
from tests.api.test_contract import CODES
from tests.jobs import DOCUMENT

TOO_LARGE = DOCUMENT | {"stage_costs": DOCUMENT["stage_costs"] | {"activation_bytes": 10}, "capacity_bytes": 4}
BODIES: dict[str, dict[str, Any]] = {
    "PUT /v1/jobs/{job_id}": {"job": DOCUMENT},
    "POST /v1/jobs/{job_id}/events": {"kind": "node_failed", "nodes": "n[02,06,10]"},
    "POST /v1/jobs/{job_id}/epochs/{epoch}/acknowledgements": {"worker": "0/0"},
    "POST /v1/jobs/{job_id}/precompute": {"tolerance": 0, "deadline_s": 0.05},
    "POST /v1/jobs/{job_id}/what-if": {"events": [{"kind": "node_failed", "nodes": "n05"}]},
    "POST /v1/plans": {"job": DOCUMENT, "options": {"deadline_s": 0.05}},
}
STREAM = "GET /v1/jobs/{job_id}/stream"
WHAT_IF = "POST /v1/jobs/{job_id}/what-if"
# A fault of the service is documented everywhere; only what has a checksum in the store can be damaged on purpose.
FAULTS = {
    f"GET /v1/{path}"
    for path in (
        "jobs/{job_id}/epochs/current",
        "jobs/{job_id}/epochs/{epoch}/programs/{worker}",
        "jobs/{job_id}/epochs/{epoch}/plan",
        "jobs/{job_id}/epochs/{epoch}",
        "jobs/{job_id}/stream",
        "jobs/{job_id}/epochs/{epoch}/acknowledgements",
        "jobs/{job_id}/epochs/{epoch}/timeline",
        "jobs/{job_id}/epochs/{epoch}/trace",
        "jobs/{job_id}/cluster",
        "jobs/{job_id}/heat",
        "jobs/{job_id}",
        "plans/{plan_id}",
        "plans/{plan_id}/summary",
        "plans/{plan_id}/programs/{worker}",
    )
} | {
    WHAT_IF,
    "POST /v1/jobs/{job_id}/events",
    "POST /v1/jobs/{job_id}/epochs/{epoch}/acknowledgements",
    "POST /v1/jobs/{job_id}/precompute",
    "PUT /v1/jobs/{job_id}",
}


class Survey:
    """Sends requests to one application after the other and notes which operation answered with which status."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.seen: dict[str, set[int]] = defaultdict(set)
        self.documented: dict[str, set[int]] = defaultdict(set)
        self.names = {"job_id": "job", "epoch": "1", "worker": "0/0", "name": "index.html"}
        self.app: Any = None
        self.is_last = False
        self.client: httpx2.AsyncClient

    @asynccontextmanager
    async def serving(self, *, key: ApiKey | None = None, **settings: Any) -> AsyncIterator[None]:
        """Run an application on the store, for a client on this machine."""
        chosen = {"store": str(self.store), "solver_processes": 1, "improvement_deadline_s": 0.01} | settings
        self.app = create_app(Settings(**chosen))
        for path, item in self.app.openapi()["paths"].items():
            for method, operation in item.items():
                self.documented[f"{method.upper()} {path}"] |= {int(status) for status in operation["responses"]}
        transport = httpx2.ASGITransport(app=self.app, client=("127.0.0.1", 1234), raise_app_exceptions=False)
        headers = {} if key is None else {"Authorization": f"Bearer {key.text}"}
        async with (
            self.app.router.lifespan_context(self.app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers, timeout=60) as client,
        ):
            self.client = client
            yield

    async def send(
        self, label: str, *, query: str = "", body: Any = None, headers: dict[str, str] | None = None, **names: str
    ) -> httpx2.Response:
        """Send a request as it should be, with what is given in place of its parts."""
        method, _, path = label.partition(" ")
        url = path.format(**self.names | names) + query
        content = body if body is not None else BODIES.get(label)
        options: dict[str, Any] = {"headers": headers or {}}
        if isinstance(content, dict):
            options["json"] = content
        elif content is not None:
            options["content"] = content
        answer = await self.client.request(method, url, **options)
        self.seen[label].add(answer.status_code)
        if answer.status_code >= 400 and label != "GET /readyz":
            assert answer.headers["content-type"] == "application/problem+json", (label, answer.text)
            assert CODES[answer.json()["code"]] == answer.status_code
        return answer

    async def send_all(self, **options: Any) -> None:
        """Send a request to every operation."""
        if not options and not self.app.state.jobs.feed.is_closed:
            # A stream of a job that is there would not end before the server.
            self.app.state.jobs.feed.close()
        for label in self.documented:
            # What is there is still needed.
            if options or not label.startswith("DELETE") or self.is_last:
                await self.send(label, **options)


async def usual_answers(survey: Survey) -> list[str]:
    """What works, what has been seen before, and what clients do wrong; plans whose programs nobody has fetched."""
    async with survey.serving():
        await survey.send("GET /readyz")
        while (await survey.client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.05)
        for _ in range(2):
            await survey.send("PUT /v1/jobs/{job_id}")
            plan = await survey.send("POST /v1/plans")
        operation = await survey.send("POST /v1/jobs/{job_id}/precompute")
        survey.names |= {"plan_id": plan.json()["plan_id"], "operation_id": operation.json()["id"]}
        await wrong_names(survey)
        await wrong_bodies(survey)
        current, events = "GET /v1/jobs/{job_id}/epochs/current", "POST /v1/jobs/{job_id}/events"
        for label in [label for label, statuses in survey.documented.items() if 304 in statuses]:
            answer = await survey.send(label)
            await survey.send(label, headers={"If-None-Match": answer.headers["etag"]})
        await survey.send(current, query="?after=1")
        await survey.send(current, query="?after=9")
        await survey.send(STREAM, query="?after=9")
        await survey.send(events, body=BODIES[events] | {"expected_epoch": 9})
        await survey.send(WHAT_IF, body=BODIES[WHAT_IF] | {"expected_epoch": 9})
        for _ in range(2):
            lost = await survey.send(events, headers={"Idempotency-Key": "lost"})
        assert lost.json()["problem"]["code"] == "stage_lost"
        for part in ("plan", "programs/{worker}", "timeline", "trace"):
            await survey.send("GET /v1/jobs/{job_id}/epochs/{epoch}/" + part, epoch="2")
        await survey.send("PUT /v1/jobs/{job_id}", body={"job": TOO_LARGE})
        await survey.send("POST /v1/plans", body={"job": DOCUMENT, "failures": {"fail": ["n[02,06,10]"]}})
        # From here on streams end at once.
        await survey.send_all()
        await survey.send("DELETE /v1/jobs/{job_id}")
        registered = await survey.send("PUT /v1/jobs/{job_id}")
        survey.names["epoch"] = str(registered.json()["epoch"])
        plans = []
        for forward_us in (3, 5, 9):
            other = DOCUMENT | {"stage_costs": DOCUMENT["stage_costs"] | {"forward_us": forward_us}}
            plans.append((await survey.send("POST /v1/plans", body={"job": other})).json()["plan_id"])
        return plans


async def wrong_names(survey: Survey) -> None:
    """Ask for what is not there, and for what cannot be."""
    nothing = {
        "name": "nothing",
        "job_id": "nobody",
        "epoch": "77",
        "worker": "7/7",
        "plan_id": "0" * 64,
        "operation_id": "0" * 32,
    }
    nonsense = {
        "name": "n" * 65,
        "job_id": "-",
        "epoch": "0",
        "worker": "w" * 25,
        "plan_id": "0" * 65,
        "operation_id": "0" * 65,
    }
    for label in [label for label in survey.documented if "{" in label]:
        if not label.startswith("PUT"):
            await survey.send(label, **nothing)
        await survey.send(label, **nonsense)
    await survey.send("GET /v1/jobs", query="?limit=0")


async def wrong_bodies(survey: Survey) -> None:
    """Send bodies that are no documents of the service."""
    for label in BODIES:
        await survey.send(label, body={"colour": "red"})
        await survey.send(label, body=b"{}", headers={"Content-Type": "text/plain"})
        await survey.send(label, body=b"[" * 100, headers={"Content-Type": "application/json"})


async def refusals(survey: Survey, keys: dict[Scope, ApiKey]) -> None:
    """Be refused by the gate: for the host's name, for the key, for too many requests, for a slow body."""
    async with survey.serving(body_timeout_s=0.05):
        await survey.send_all(headers={"Host": "replan.example"})
        for label in BODIES:
            survey.seen[label].add(await status_of_slow_body(survey, label))
    async with survey.serving(read_rate=1, change_rate=1):
        for _ in range(2):
            await survey.send_all()
        await survey.send("DELETE /v1/jobs/{job_id}")
    async with survey.serving(require_keys=True, key=keys[Scope.READ]):
        await survey.send_all(headers={"Authorization": "Bearer nothing"})
        await survey.send_all()


async def status_of_slow_body(survey: Survey, label: str) -> int:
    """Status of a request whose body never comes."""
    method, _, path = label.partition(" ")

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"100")]
    url = path.format(**survey.names)
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": url, "raw_path": url.encode(), "scheme": "http",
        "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "root_path": "",
    }  # fmt: skip
    statuses: list[int] = []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await survey.app(scope, lambda: asyncio.sleep(60), send)
    return statuses[0]


async def solvers_too_slow(survey: Survey, unread: str) -> None:
    """Give solver processes no time at all for what is not in the store."""
    other = {"job": DOCUMENT | {"stage_costs": DOCUMENT["stage_costs"] | {"forward_us": 7}}}
    async with survey.serving(solve_grace_s=1e-6, event_deadline_s=1e-6):
        while (await survey.client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.05)
        await survey.send("PUT /v1/jobs/{job_id}", body=other)
        await survey.send("POST /v1/plans", body=other | {"options": {"deadline_s": 1e-6}})
        await survey.send("GET /v1/plans/{plan_id}/programs/{worker}", plan_id=unread)
        for part in ("plan", "programs/{worker}", "timeline", "trace"):
            await survey.send("GET /v1/jobs/{job_id}/epochs/{epoch}/" + part)


async def damage(survey: Survey, *statements: str) -> None:
    """Change the database behind the back of a server that runs."""
    async with survey.serving():
        while (await survey.client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.05)
        with closing(sqlite3.connect(survey.store)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        await survey.send_all()


def tables_with(store: Path, column: str) -> list[str]:
    """Tables that have a column; all of them where its name is empty."""
    with closing(sqlite3.connect(store)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [t for t in tables if column in ["", *(row[1] for row in connection.execute(f"PRAGMA table_info({t})"))]]


async def survey_all(path: Path) -> Survey:
    """Bring about every documented status."""
    store = Store(str(path))
    keys = {scope: create_key(store, name=scope.label, scope=scope) for scope in Scope}
    store.close()
    survey = Survey(path)
    unread = await usual_answers(survey)
    await refusals(survey, keys)
    await solvers_too_slow(survey, unread[2])
    columns = ("checksum", "content_sha256", "summary_sha256")
    damaging = [f"UPDATE {t} SET {c} = 'damaged'" for c in columns for t in tables_with(path, c)]
    # A job whose document is there all the same is mended by registering it again.
    await damage(survey, *damaging, "UPDATE job_revisions SET document = x'7b7d'")
    # A damaged plan is dropped, so each of what is read of a plan has one of its own.
    async with survey.serving():
        for part, plan_id in zip(("", "/summary", "/programs/{worker}"), unread, strict=True):
            await survey.send("GET /v1/plans/{plan_id}" + part, plan_id=plan_id)
    survey.is_last = True
    await damage(survey, "PRAGMA foreign_keys = OFF", *(f"DROP TABLE {table}" for table in tables_with(path, "")))
    return survey


def test_every_documented_status_is_answered(tmp_path: Path) -> None:
    """Each operation answers with each status that the document names for it, and with no other."""
    survey = asyncio.run(survey_all(tmp_path / "replan.db"))
    expected = {
        label: statuses - (set() if label in FAULTS else {500}) for label, statuses in survey.documented.items()
    }
    found = {label: survey.seen[label] - (set() if label in FAULTS else {500}) for label in survey.documented}
    missing = {label: sorted(expected[label] - found[label]) for label in expected if expected[label] - found[label]}
    further = {label: sorted(found[label] - expected[label]) for label in expected if found[label] - expected[label]}
    assert (missing, further) == ({}, {})
