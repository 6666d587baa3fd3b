"""Clients that keep books while servers die: reporters, a follower of the stream, and one that asks for plans ahead of time."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.api.torture.fleet import Fleet
from tests.jobs import TIGHT

JOB = "job"
NUM_KEYS = 15
"""Failure keys of four slots of three workers with up to two of them failed: 1 + 4 + (4 in one slot + 6 in two slots)."""
NODES = ("n00", "n01", "n02", "n03")
"""One node of each slot: whatever of them is down, every slot has two live workers."""
_OPEN_OPERATIONS = 3
_NEW_SPEED_SHARE = 0.01
"""How often a slow node has a speed for which no plan is ready, perhaps."""
_REPEATED_SHARE = 0.1
"""How often a report is sent again that was acknowledged before."""


@dataclass(slots=True)
class Ledger:
    """What clients sent and were told.

    Parameters
    ----------
    reported, told
        Of each idempotency key: the report, and the epoch that acknowledged it.
    streamed
        Of each epoch that the stream showed: its body.
    operations
        Of each acknowledged operation: the job it was asked for.
    interrupted
        Operations that were begun, and found unfinished by a server that started later.
    """

    reported: dict[str, dict[str, Any]] = field(default_factory=dict)
    told: dict[str, bytes] = field(default_factory=dict)
    streamed: dict[int, bytes] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)
    interrupted: set[str] = field(default_factory=set)


class Caller:
    """Sends requests to whichever server listens, again and again until one of them answers.

    Parameters
    ----------
    fleet
        The servers.
    stop
        Set when clients are to come to an end.
    seed
        Seed of its random choices.
    """

    def __init__(self, fleet: Fleet, stop: threading.Event, seed: str) -> None:
        self.draw = random.Random(seed)
        self.stop = stop
        self.num_lost = 0
        self._fleet = fleet
        # One for all servers: to make one takes longer than many a server lives.
        self.client = httpx2.Client(timeout=60)

    def call(
        self, method: str, path: str, *, key: str | None = None, body: object = None, ends_early: bool = True
    ) -> httpx2.Response | None:
        """Answer below 500; ``None`` where clients are to end first, unless the request must not ``ends_early``."""
        headers = {} if key is None else {"Idempotency-Key": key}
        while not (ends_early and self.stop.is_set()):
            assert not self._fleet.is_lost, "no server is started any more"
            url = self._fleet.any_url(self.draw)
            if url is None:
                time.sleep(0.02)
                continue
            try:
                answer = self.client.request(method, url + path, json=body, headers=headers)
            except httpx2.TransportError:
                self.num_lost += 1
                time.sleep(0.02)
                continue
            if answer.status_code < 500:
                return answer
            assert answer.headers["content-type"] == "application/problem+json", answer.text
            assert answer.status_code == 503, answer.text
            time.sleep(0.05)
        return None

    def get(self, path: str) -> Any:
        """Answer of a request that must succeed, from JSON."""
        answer = self.call("GET", path, ends_early=False)
        assert answer is not None
        assert answer.status_code == 200, answer.text
        return answer.json()

    def put(self, path: str, body: object) -> Any:
        """Answer to a document that must be taken, from JSON."""
        answer = self.call("PUT", path, body=body, ends_early=False)
        assert answer is not None
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def pause(self) -> None:
        """Wait a moment before the same is asked again."""
        time.sleep(0.1)

    def close(self) -> None:
        """Close all connections."""
        self.client.close()


def report_all(caller: Caller, ledger: Ledger) -> None:
    """Bring about every failure set of the nodes once, so that their plans are ready, in the order of a Gray code."""
    codes = [number ^ number >> 1 for number in range(2 ** len(NODES))]
    for number, (before, code) in enumerate(zip(codes, [*codes[1:], 0], strict=True)):
        place = (before ^ code).bit_length() - 1
        _report(
            caller,
            ledger,
            f"first-{number}",
            _failure_of(NODES[place]) if code > before else _recovery_of(NODES[place]),
        )


def report(caller: Caller, ledger: Ledger, node: str) -> None:
    """Let a node fail, or get slow, and recover, again and again; each report is sent until it is acknowledged."""
    number = 0
    while not caller.stop.is_set():
        failure = _failure_of(node)
        if "speed" in failure and caller.draw.random() < _NEW_SPEED_SHARE:
            failure |= {"speed": round(caller.draw.uniform(0.1, 0.9), 2)}
        _report(caller, ledger, f"{node}-{number}", failure)
        _report(caller, ledger, f"{node}-{number + 1}", _recovery_of(node))
        number += 2
        if caller.draw.random() < _REPEATED_SHARE:
            key = f"{node}-{caller.draw.randrange(number)}"
            again = _post(caller, key, ledger.reported[key])
            assert (again.status_code, again.content) == (200, ledger.told[key])


def _failure_of(node: str) -> dict[str, Any]:
    """What happens to a node: the first one gets slow, the others fail."""
    what = {"kind": "node_degraded", "speed": 0.5} if node == NODES[0] else {"kind": "node_failed"}
    return what | {"nodes": node}


def _recovery_of(node: str) -> dict[str, Any]:
    return {"kind": "node_recovered", "nodes": node}


def _report(caller: Caller, ledger: Ledger, key: str, body: dict[str, Any]) -> None:
    ledger.reported[key] = body
    ledger.told[key] = _post(caller, key, body).content


def _post(caller: Caller, key: str, body: dict[str, Any]) -> httpx2.Response:
    answer = caller.call("POST", f"/v1/jobs/{JOB}/events", key=key, body=body, ends_early=False)
    assert answer is not None
    assert answer.status_code in (200, 201), answer.text
    return answer


def follow(caller: Caller, fleet: Fleet, ledger: Ledger) -> None:
    """Follow the stream through every restart: each epoch comes once and in order."""
    last = 0
    while not caller.stop.is_set():
        url = fleet.any_url(caller.draw)
        if url is None:
            time.sleep(0.02)
            continue
        try:
            headers = {"Last-Event-ID": str(last)}
            with caller.client.stream("GET", f"{url}/v1/jobs/{JOB}/stream", headers=headers, timeout=5) as answer:
                if answer.status_code != 200:
                    assert answer.status_code == 503
                    time.sleep(0.05)
                    continue
                for line in answer.iter_lines():
                    if line.startswith("id: "):
                        assert int(line[4:]) == last + 1, f"epoch {line[4:]} came behind epoch {last}"
                        last += 1
                    elif line.startswith("data: "):
                        ledger.streamed[last] = line[6:].encode()
                    if caller.stop.is_set():
                        return
        except httpx2.TransportError:
            time.sleep(0.02)


def ask_for_plans(caller: Caller, fleet: Fleet, ledger: Ledger) -> None:
    """Register jobs of ever other costs and have their plans made ready, some operations at a time."""
    started: dict[str, int | None] = {}
    number = 0
    while not caller.stop.is_set():
        for operation, num_starts in list(started.items()):
            state = caller.get(f"/v1/operations/{operation}")["state"]
            if state == "running" and num_starts is None:
                started[operation] = fleet.num_starts
            elif state == "running" and num_starts != fleet.num_starts:
                ledger.interrupted.add(operation)
            elif state == "done":
                del started[operation]
        if len(started) >= _OPEN_OPERATIONS:
            caller.pause()
            continue
        name, number = f"ahead-{number}", number + 1
        costs = TIGHT["stage_costs"] | {"forward_us": 100 + number}
        caller.put(f"/v1/jobs/{name}", {"job": TIGHT | {"name": name, "stage_costs": costs}, "tolerance": 2})
        asked = {"mode": "all", "deadline_s": 0.1}
        answer = caller.call("POST", f"/v1/jobs/{name}/precompute", body=asked, ends_early=False)
        assert answer is not None
        assert answer.status_code == 202, answer.text
        operation = answer.json()["id"]
        ledger.operations[operation], started[operation] = name, None
