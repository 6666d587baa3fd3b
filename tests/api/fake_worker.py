"""A solver process without a planner: what a request's job document says, it does."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from api import worker
from planner.errors import InvalidScheduleError, StageLostError


def act(orders: Mapping[str, object]) -> None:
    """Wait until a file is there, sleep, die, refuse or fail as ordered."""
    if "log" in orders:
        with Path(str(orders["log"])).open("a") as log:
            log.write(f"{os.getpid()}\n")
    if "sleep_first_s" in orders and Path(str(orders["log"])).read_text().count("\n") == 1:
        time.sleep(float(str(orders["sleep_first_s"])))
    while "until" in orders and not Path(str(orders["until"])).exists():
        time.sleep(0.01)
    if "sleep_s" in orders:
        time.sleep(float(str(orders["sleep_s"])))
    if orders.get("die"):
        os._exit(3)
    if "die_once" in orders:
        marker = Path(str(orders["die_once"]))
        if not marker.exists():
            marker.touch()
            os._exit(3)
    if orders.get("print"):
        print("noise on standard output", flush=True)
        os.write(1, b"more noise\n")
    if orders.get("stage_lost"):
        raise StageLostError("slots [2] have no live worker left", hint="restore a checkpoint")
    if orders.get("invalid"):
        raise InvalidScheduleError("secret: worker 1/2 overlaps")
    if orders.get("bug"):
        raise KeyError("secret bug")


def plan(parts: list[bytes]) -> list[bytes]:
    """Id, plan file and summary that say no more than which request it was."""
    request = json.loads(parts[0])
    act(request["job"])
    plan_id = hashlib.sha256(parts[0]).hexdigest()
    content = json.dumps({"plan_id": plan_id, "padding": "x" * int(request["job"].get("size", 0))}).encode()
    summary = {"plan_id": plan_id, "solver": "fake", "gap": 0.25, "compared_with": parts[1].decode()}
    hindered = b"hindered" if request["job"].get("hindered") else b""
    return [plan_id.encode(), content, json.dumps(summary).encode(), hindered]


def programs(parts: list[bytes]) -> list[bytes]:
    """Two workers' programs; rank 17 belongs to worker 1/0."""
    plan_id = json.loads(parts[0])["plan_id"]
    made = [(f"{k}/0", json.dumps({"plan_id": plan_id, "worker": f"{k}/0"})) for k in range(2)]
    return [b'{"17": "1/0"}', *(text.encode() for pair in made for text in pair)]


def echo(parts: list[bytes]) -> list[bytes]:
    """Do what the first part orders, then give it all back with the process id."""
    act(json.loads(parts[0]))
    return [str(os.getpid()).encode(), *parts]


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "never-ready":
        sys.exit(7)
    worker.main(lambda: {b"plan": plan, b"programs": programs, b"echo": echo})
