"""The service under load: ``python -m benchmarks.service [--events 200] [--misses 20] [--workers 2048] [--json FILE]``.

Starts a real server with one API process on this machine and measures over loopback, for Llama 3 405B on 16,384 GPUs:

- *hit*: a failure or recovery whose plan is ready, from the request to the answered, durable epoch; once with the workers
  of the epoch before served, once event after event, while the programs of every epoch are made;
- *miss*: the same where the plan has to be made first, while the background searches for a better one for the epoch before;
- *crowd*: every worker fetches the current epoch and its program at once, each over a connection of its own, opened before;
  once with the programs at hand, once right behind the event, when they are still to be made;
- *hot fetch*: one worker alone, again and again.

The client runs on the same CPUs as the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from planner.formats.documents import parse_document

EXAMPLE = Path(__file__).parent.parent / "examples" / "llama3-405b.yaml"
JOB = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Times of one kind of request, milliseconds; ``total_s`` from the first request to the last answer.

    ``cpu_s`` is the CPU time of the API process meanwhile, which says more than the rest where the machine has other work.
    """

    name: str
    count: int
    errors: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    total_s: float
    cpu_s: float


class Api:
    """A plain client, one request at a time, of a server process."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid

    def cpu_s(self) -> float:
        """CPU time of the API process so far, without its solver processes."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def call(self, method: str, path: str, body: object | None = None) -> Any:
        """Answer of a request, from JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            content = answer.read()
        return json.loads(content) if content else None


def until_ready(api: Api, processes: int) -> None:
    """Wait until all solver processes are warm; raises what ``/readyz`` says where they are not within two minutes."""
    deadline = time.monotonic() + 120
    while True:
        try:
            if api.call("GET", "/readyz")["solver_processes_ready"] == processes:
                return
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


@contextmanager
def server(folder: Path, processes: int) -> Iterator[Api]:
    """A server on a new store, ready."""
    command = [sys.executable, "-m", "cli.main", "serve", "--port", "0", "--json", "--log-level", "error"]
    command += ["--store", str(folder / "bench.db"), "--processes", str(processes)]
    environment = os.environ | {"REPLAN_READ_RATE": "0", "REPLAN_CHANGE_RATE": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = next(match[1] for line in process.stdout if (match := re.search(r'"url": "([^"]+)"', line)))
            api = Api(url, process.pid)
            until_ready(api, processes)
            yield api
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def row(name: str, times_s: Sequence[float], errors: int, total_s: float, cpu_s: float) -> Row:
    """Percentiles of measured times."""
    ordered = sorted(times_s)
    return Row(
        name=name,
        count=len(ordered),
        errors=errors,
        p50_ms=1000 * statistics.median(ordered),
        p99_ms=1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        worst_ms=1000 * ordered[-1],
        total_s=total_s,
        cpu_s=cpu_s,
    )


def measure_events(api: Api, name: str, nodes: Sequence[str], source: str, *, is_settled: bool) -> Row:
    """Fail and recover nodes in turn; counts those events whose plan came from ``source``.

    With ``is_settled`` each event waits until the workers have the programs of the epoch before, as in a job that runs.
    """
    times, errors, cpu, began = [], 0, api.cpu_s(), time.perf_counter()
    for node in nodes:
        for kind in ("node_failed", "node_recovered"):
            if is_settled:
                current = api.call("GET", f"/v1/jobs/{JOB}/epochs/current")
                worker = "0/0" if "0/0" not in current["failed_workers"] else "1/0"
                api.call("GET", f"/v1/jobs/{JOB}/epochs/{current['epoch']}/programs/{worker}")
            sent = time.perf_counter()
            body = api.call("POST", f"/v1/jobs/{JOB}/events", {"kind": kind, "nodes": node})
            if body["source"] == source:
                times.append(time.perf_counter() - sent)
            elif kind == "node_failed":
                errors += 1
    return row(name, times, errors, time.perf_counter() - began, api.cpu_s() - cpu)


class Connection:
    """One worker's connection: HTTP/1.1 by hand, so that the client costs little beside the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer, self._host = reader, writer, host

    @classmethod
    async def open(cls, url: str) -> Connection:
        """Connect."""
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        return cls(reader, writer, parts.netloc)

    async def get(self, path: str) -> int:
        """Status of a request whose answer was read to its end."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None:
            await self._reader.readexactly(int(length[1]))
        return int(head[9:12])

    def close(self) -> None:
        """Close it."""
        self._writer.close()


async def measure_crowd(api: Api, name: str, workers: Sequence[str], epoch: int) -> Row:
    """Every worker fetches the current epoch and its program at once."""
    connections = [await Connection.open(api.url) for _ in workers]
    return await _crowd(api, name, connections, workers, epoch)


async def measure_cold_crowd(api: Api, name: str, workers: Sequence[str], node: str) -> Row:
    """The same right behind an event: an event is posted, and at its answer everybody fetches."""
    connections = [await Connection.open(api.url) for _ in workers]
    body = await asyncio.to_thread(api.call, "POST", f"/v1/jobs/{JOB}/events", {"kind": "node_failed", "nodes": node})
    live = [worker for worker in workers if worker not in body["failed_workers"]]
    return await _crowd(api, name, connections, live, body["epoch"])


async def _crowd(api: Api, name: str, connections: Sequence[Connection], workers: Sequence[str], epoch: int) -> Row:
    cpu, began = api.cpu_s(), time.perf_counter()

    async def one(connection: Connection, worker: str) -> tuple[float, bool]:
        paths = (f"/v1/jobs/{JOB}/epochs/current", f"/v1/jobs/{JOB}/epochs/{epoch}/programs/{worker}")
        statuses = [await connection.get(path) for path in paths]
        return time.perf_counter() - began, statuses == [200, 200]

    done = await asyncio.gather(*(one(c, w) for c, w in zip(connections, workers, strict=False)))
    total = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return row(name, [seconds for seconds, _ in done], sum(not good for _, good in done), total, api.cpu_s() - cpu)


async def measure_hot(api: Api, name: str, paths: Sequence[str], count: int) -> Row:
    """One worker alone."""
    connection = await Connection.open(api.url)
    times, errors, cpu, began = [], 0, api.cpu_s(), time.perf_counter()
    for i in range(count):
        sent = time.perf_counter()
        errors += await connection.get(paths[i % len(paths)]) != 200
        times.append(time.perf_counter() - sent)
    connection.close()
    return row(name, times, errors, time.perf_counter() - began, api.cpu_s() - cpu)


def measure(arguments: argparse.Namespace) -> Iterator[Row]:
    """All rows."""
    job = parse_document(EXAMPLE.read_text(encoding="utf-8"), format="yaml")
    draw = random.Random(0)
    nodes = [f"gpu{number:04d}" for number in range(1, 2049)]
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), arguments.processes) as api:
        api.call("PUT", f"/v1/jobs/{JOB}", {"job": job, "tolerance": 1})
        # One node of each slot makes the plans of one failure ready; these first reports are the misses.
        first_of_slot = nodes[:16]
        yield measure_events(api, "miss", first_of_slot[: arguments.misses], "solved", is_settled=True)
        operation = api.call("POST", f"/v1/jobs/{JOB}/precompute", {"mode": "all", "tolerance": 1, "deadline_s": 0.25})
        while api.call("GET", f"/v1/operations/{operation['id']}")["state"] in ("queued", "running"):
            time.sleep(0.5)
        hurt = draw.sample(nodes, arguments.events // 2)
        yield measure_events(api, "hit", hurt, "store", is_settled=True)
        yield measure_events(api, "hits back to back", hurt, "store", is_settled=False)
        everyone = [f"{k}/{s}" for k in range(128) for s in range(16)][: arguments.workers]
        yield asyncio.run(measure_cold_crowd(api, "crowd behind the event", everyone, draw.choice(nodes)))
        epoch = api.call("GET", f"/v1/jobs/{JOB}/epochs/current")
        live = [worker for worker in everyone if worker not in epoch["failed_workers"]]
        for _ in range(arguments.repeats):
            yield asyncio.run(measure_crowd(api, "crowd", live, epoch["epoch"]))
        base = f"/v1/jobs/{JOB}/epochs"
        yield asyncio.run(measure_hot(api, "hot epoch", [f"{base}/current"], 2000))
        programs = [f"{base}/{epoch['epoch']}/programs/{worker}" for worker in live]
        yield asyncio.run(measure_hot(api, "hot program", programs, 2000))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="RePlan's service under load")
    parser.add_argument("--events", type=int, default=200, help="events that hit")
    parser.add_argument("--misses", type=int, default=16, help="events that miss, at most 16")
    parser.add_argument("--workers", type=int, default=2048, help="workers in the crowd, at most 2048")
    parser.add_argument("--repeats", type=int, default=3, help="crowds")
    parser.add_argument("--processes", type=int, default=2, help="solver processes of the server")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    arguments = parser.parse_args()
    sys.stdout.write(
        "| what | count | errors | p50 ms | p99 ms | worst ms | total s | API CPU s |\n|---|---|---|---|---|---|---|---|\n"
    )
    rows = []
    for found in measure(arguments):
        rows.append(found)
        sys.stdout.write(
            f"| {found.name} | {found.count} | {found.errors} | {found.p50_ms:.2f} | {found.p99_ms:.2f} "
            f"| {found.worst_ms:.2f} | {found.total_s:.2f} | {found.cpu_s:.2f} |\n"
        )
        sys.stdout.flush()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout
    sys.stdout.write(
        f"\n{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
        f"commit {commit.strip() or 'unknown'}\n"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(found) for found in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
