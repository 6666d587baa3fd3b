"""Many open event streams: ``python -m benchmarks.streams [--streams 1000] [--seconds 60] [--job FILE] [--json FILE]``.

Starts a real server with one API process on this machine, keeps its solver processes busy, opens that many streams of one
job's epochs, and reports a failure or a recovery every other second. Measured over loopback meanwhile:

- *stream*: from an event's answer to its arrival on each stream;
- *health*: ``/healthz``, asked twenty times a second;
- the memory of the API process: before, with all streams open, after a quarter of the time, at the end, with all closed.

The client runs on the same CPUs as the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from benchmarks.service import EXAMPLE, JOB, Api, server
from planner.formats.documents import parse_document

_EVENT_S = 2.0
_HEALTH_S = 0.05
_OPENED_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured. Times in milliseconds, memory of the API process in MiB.

    Parameters
    ----------
    streams, seconds, events
        Open streams, for how long, and epochs that were made meanwhile.
    lost
        Epochs that some stream did not get, counted once a stream.
    stream_p50_ms, stream_p99_ms, stream_worst_ms
        From an event's answer to its arrival on a stream.
    checks, failed_checks, health_p50_ms, health_p99_ms, health_worst_ms
        Answers of ``/healthz``.
    plans
        Plans that the solver processes were kept busy with.
    before_mib, opened_mib, early_mib, late_mib, closed_mib
        Memory without streams, with all of them, after a quarter of the time, at the end, and once they are closed.
    """

    streams: int
    seconds: float
    events: int
    lost: int
    stream_p50_ms: float
    stream_p99_ms: float
    stream_worst_ms: float
    checks: int
    failed_checks: int
    health_p50_ms: float
    health_p99_ms: float
    health_worst_ms: float
    plans: int
    before_mib: float
    opened_mib: float
    early_mib: float
    late_mib: float
    closed_mib: float


@dataclass(slots=True)
class _Notes:
    """What is noted while it runs: when each event was answered, and when each epoch came."""

    answered: dict[int, float] = field(default_factory=dict)
    arrived: dict[int, list[float]] = field(default_factory=dict)


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def percentile(values: Sequence[float], share: float) -> float:
    """Value that a share of all values does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def measure(api: Api, job: dict[str, Any], *, streams: int, seconds: float, warm_up_s: float, node: str) -> Figures:
    """Measure on a server.

    Parameters
    ----------
    api
        The server; no job is registered there.
    job
        A job document.
    streams, seconds
        Streams to open, and for how long.
    warm_up_s
        Seconds of events before, in which the server fills what it keeps of plans and programs.
    node
        Node that fails and recovers.
    """
    api.call("PUT", f"/v1/jobs/{JOB}", {"job": job})
    for kind in ("node_failed", "node_recovered"):  # the plans are ready from then on
        api.call("POST", f"/v1/jobs/{JOB}/events", {"kind": kind, "nodes": node})
    with _busy_solvers(api, job, node) as plans:
        return asyncio.run(_measure(api, plans, streams=streams, seconds=seconds, warm_up_s=warm_up_s, node=node))


async def _measure(api: Api, plans: list[int], *, streams: int, seconds: float, warm_up_s: float, node: str) -> Figures:
    warming = asyncio.create_task(_report(api, node, _Notes()))
    await asyncio.sleep(warm_up_s)
    await _cancel([warming])
    await _recover(api, node)
    notes, opened = _Notes(), asyncio.Semaphore(_OPENED_AT_ONCE)
    before = memory_mib(api.pid)
    first = api.call("GET", f"/v1/jobs/{JOB}/epochs/current")["epoch"]
    readers = [asyncio.create_task(_read(api.url, first, notes, opened)) for _ in range(streams)]
    while len(notes.arrived.get(first, ())) < streams:
        _raise_failures(readers)
        await asyncio.sleep(0.1)
    opened_mib, began = memory_mib(api.pid), time.perf_counter()
    reporting = asyncio.create_task(_report(api, node, notes))
    # A process of its own: what the streams cost this one must not be taken for the server's.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        checking = asyncio.get_running_loop().run_in_executor(other, check_health, api.url, seconds)
        await asyncio.sleep(seconds / 4)
        early = memory_mib(api.pid)
        checks_s, failed_checks = await checking
    took = time.perf_counter() - began
    await _cancel([reporting])
    until = time.perf_counter() + 30
    while time.perf_counter() < until and _lost(notes, streams):
        await asyncio.sleep(0.05)
    late = memory_mib(api.pid)
    await _cancel(readers)
    await asyncio.sleep(1.0)
    delays = [
        1000 * (at - answered) for epoch, answered in notes.answered.items() for at in notes.arrived.get(epoch, ())
    ]
    checks = [1000 * check for check in checks_s]
    return Figures(
        streams=streams,
        seconds=took,
        events=len(notes.answered),
        lost=_lost(notes, streams),
        stream_p50_ms=statistics.median(delays) if delays else 0.0,
        stream_p99_ms=percentile(delays, 0.99),
        stream_worst_ms=max(delays, default=0.0),
        checks=len(checks),
        failed_checks=failed_checks,
        health_p50_ms=statistics.median(checks) if checks else 0.0,
        health_p99_ms=percentile(checks, 0.99),
        health_worst_ms=max(checks, default=0.0),
        plans=len(plans),
        before_mib=before,
        opened_mib=opened_mib,
        early_mib=early,
        late_mib=late,
        closed_mib=memory_mib(api.pid),
    )


async def _read(url: str, first: int, notes: _Notes, opened: asyncio.Semaphore) -> None:
    """One stream: note when each epoch comes."""
    parts = urlsplit(url)
    async with opened:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"GET /v1/jobs/{JOB}/stream?after={first - 1} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a stream was answered {head[:80]!r}")
    try:
        while line := await reader.readline():
            if line.startswith(b"id: "):
                notes.arrived.setdefault(int(line[4:]), []).append(time.perf_counter())
        raise RuntimeError("a stream ended")
    finally:
        writer.close()


def check_health(url: str, seconds: float) -> tuple[list[float], int]:
    """Ask for a server's health for a while; the seconds that each answer took, and how many were not 200."""
    parts, took, failed = urlsplit(url), list[float](), 0
    assert parts.hostname is not None
    connection, until = HTTPConnection(parts.hostname, parts.port), time.perf_counter() + seconds
    with closing(connection):
        while (sent := time.perf_counter()) < until:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            answer.read()
            took.append(time.perf_counter() - sent)
            failed += answer.status != 200
            time.sleep(_HEALTH_S)
    return took, failed


async def _recover(api: Api, node: str) -> None:
    """Recover the node where it was left failed; an event that was in flight when its reporter ended may still come."""
    await asyncio.sleep(_EVENT_S)
    if api.call("GET", f"/v1/jobs/{JOB}/epochs/current")["failed_workers"]:
        api.call("POST", f"/v1/jobs/{JOB}/events", {"kind": "node_recovered", "nodes": node})


async def _report(api: Api, node: str, notes: _Notes) -> None:
    while True:
        for kind in ("node_failed", "node_recovered"):
            body = await asyncio.to_thread(api.call, "POST", f"/v1/jobs/{JOB}/events", {"kind": kind, "nodes": node})
            notes.answered[body["epoch"]] = time.perf_counter()
            await asyncio.sleep(_EVENT_S)


@contextmanager
def _busy_solvers(api: Api, job: dict[str, Any], node: str) -> Iterator[list[int]]:
    """Ask for one plan after the other, two at a time; the seeds of those that were made."""
    stop, made = threading.Event(), list[int]()

    def ask(seed: int) -> None:
        while not stop.is_set():
            seed += 2
            body = {"job": job, "failures": {"fail": [node]}, "options": {"deadline_s": 3, "seed": seed}}
            with suppress(HTTPError):
                api.call("POST", "/v1/plans", body)
                made.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _lost(notes: _Notes, streams: int) -> int:
    return sum(streams - len(notes.arrived.get(epoch, ())) for epoch in notes.answered)


def _raise_failures(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End tasks; raises what one has failed with."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
            raise result


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="RePlan's service with many open streams")
    parser.add_argument("--streams", type=int, default=1000, help="streams to open")
    parser.add_argument("--seconds", type=float, default=60, help="how long they stay open")
    parser.add_argument("--warm-up", type=float, default=60, help="seconds of events before")
    parser.add_argument("--job", type=Path, default=EXAMPLE, help="job file, YAML")
    parser.add_argument("--node", default="gpu0006", help="node of the job that fails and recovers")
    parser.add_argument("--processes", type=int, default=2, help="solver processes of the server")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    job = parse_document(arguments.job.read_text(encoding="utf-8"), format="yaml")
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), arguments.processes) as api:
        figures = measure(
            api,
            job,
            streams=arguments.streams,
            seconds=arguments.seconds,
            warm_up_s=arguments.warm_up,
            node=arguments.node,
        )
    sys.stdout.write("| what | |\n|---|---|\n")
    for name, value in asdict(figures).items():
        sys.stdout.write(f"| {name} | {value:.4g} |\n")
    sys.stdout.write(f"\n{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(asdict(figures), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
