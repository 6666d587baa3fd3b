"""Several processes on this machine that talk through one store: what measuring and emulating need of a cluster."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

import torch
from torch.distributed import PrefixStore, Store, TCPStore

from replan_client.torch.profiler_errors import EmulationError

Json: TypeAlias = Any
Body: TypeAlias = Callable[[int, Store, Json], Json]
"""What a process runs: its number, a store that all share, and its argument; the result is plain data for JSON."""

_STORE_TIMEOUT_S = 60.0


def run_processes(body: Body, arguments: list[Json], *, timeout_s: float) -> list[Json]:
    """Run a function once in a process of its own for each argument; their results.

    Processes are forked from a server that has imported PyTorch, use one thread each, and are gone when this returns.

    Parameters
    ----------
    body
        Function of a module; processes import it.
    arguments
        One for each process: plain data.
    timeout_s
        Seconds that all have together, above 0.

    Raises
    ------
    EmulationError
        If a process fails, with what it said, dies, or time runs out.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ends = time.monotonic() + timeout_s
    processes, pipes = [], []
    try:
        for number, argument in enumerate(arguments):
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=_run, args=(there, server.port, body, number, json.dumps(argument)), daemon=True
            )
            process.start()
            there.close()
            processes.append(process)
            pipes.append(here)
        return _results(pipes, ends)
    finally:
        for process, pipe in zip(processes, pipes, strict=True):
            process.kill()
            process.join()
            process.close()
            pipe.close()


def _results(pipes: list[Connection], ends: float) -> list[Json]:
    """Results of all processes; whichever fails first is told of, since the others may only have waited for it."""
    results: dict[int, Json] = {}
    while len(results) < len(pipes):
        waiting = [pipe for number, pipe in enumerate(pipes) if number not in results]
        ready = wait(waiting, timeout=max(0.0, ends - time.monotonic()))
        if not ready:
            missing = [number for number in range(len(pipes)) if number not in results]
            raise EmulationError(
                f"processes {missing} have no result in time", hint="give them more time, or emulate less"
            )
        for number, pipe in enumerate(pipes):
            if pipe not in ready:
                continue
            try:
                answer = json.loads(pipe.recv_bytes())
            except EOFError as error:
                raise EmulationError(f"process {number} died without a result") from error
            if "error" in answer:
                raise EmulationError(f"process {number} failed: {answer['error']}")
            results[number] = answer["result"]
    return [results[number] for number in range(len(pipes))]


def _run(pipe: Connection, port: int, body: Body, number: int, argument: str) -> None:
    """Body of a process: the result, or what went wrong, goes back as JSON."""
    # All are on this machine, so gloo need not find out which address others reach.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        store = TCPStore("127.0.0.1", port, is_master=False)
        answer = {"result": body(number, PrefixStore("processes", store), json.loads(argument))}
    except Exception:
        answer = {"error": traceback.format_exc()}
    pipe.send_bytes(json.dumps(answer).encode())
    # The others may still need this process's store and sockets; the parent ends it.
    time.sleep(_STORE_TIMEOUT_S)
