"""A solver process: reads requests from the server, plans, and answers. Run as ``python -m api.worker``.

It ends when the server does: its input closes then, and on Linux the kernel kills it even while compiled code runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from api.messages import Handler, MessageEndError, encode, read_message
from planner.errors import ReplanError, SolverCrashedError

READY = b"ready"
OK = b"ok"
REFUSED = b"refused"
"""The answer is an error of the tree: class name, message, hint and places as JSON."""
BROKEN = b"broken"
"""The answer is a bug of ours; its traceback went to the log."""


def main(load: Callable[[], Mapping[bytes, Handler]]) -> None:
    """Serve requests until the input closes.

    Parameters
    ----------
    load
        Imports and warms up what is needed, and gives the handlers: the first part of a request names one, the others
        are its arguments.
    """
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server stops its children itself
    requests, answers = _take_channel()
    inbox: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=(requests, inbox), daemon=True).start()
    handlers = load()
    _send(answers, [READY])
    while True:
        name, *parts = inbox.get()
        _send(answers, answer(handlers[name], parts))


def answer(handler: Handler, parts: list[bytes]) -> list[bytes]:
    """Answer of one handler; errors become messages."""
    try:
        return [OK, *handler(parts)]
    except ReplanError as error:
        refusal = {
            "class": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "places": list(getattr(error, "places", ())),
        }
        return [REFUSED, json.dumps(refusal).encode()]
    except Exception as error:  # the process must outlive any bug of one request
        traceback.print_exc(file=sys.stderr)
        return [BROKEN, type(error).__name__.encode()]


def unpack(answer: list[bytes]) -> list[bytes]:
    """Parts that a handler answered, from the message that :func:`answer` made of them.

    Raises
    ------
    ReplanError
        What the handler raised.
    SolverCrashedError
        If it hit a bug.
    """
    kind, *parts = answer
    if kind == REFUSED:
        raise _rebuild_error(json.loads(parts[0]))
    if kind != OK:
        raise SolverCrashedError(f"a solver process hit a bug: {parts[0].decode(errors='replace')}")
    return parts


def _rebuild_error(refusal: dict[str, Any]) -> ReplanError:
    todo: list[type[ReplanError]] = [ReplanError]
    kinds: dict[str, type[ReplanError]] = {}
    while todo:
        kind = todo.pop()
        kinds[kind.__name__] = kind
        todo += kind.__subclasses__()
    error = kinds.get(refusal["class"], ReplanError)(refusal["message"], hint=refusal["hint"])
    if refusal["places"]:
        error.places = tuple(refusal["places"])  # type: ignore[attr-defined]
    return error


def _read_all(requests: BinaryIO, inbox: queue.SimpleQueue[list[bytes]]) -> None:
    try:
        while True:
            inbox.put(read_message(requests))
    except MessageEndError:
        os._exit(0)  # the server is gone, so is the reader of whatever is being worked out


def _send(answers: BinaryIO, parts: list[bytes]) -> None:
    try:
        answers.write(encode(parts))
        answers.flush()
    except BrokenPipeError:
        os._exit(0)


def _take_channel() -> tuple[BinaryIO, BinaryIO]:
    """Move the channel off the standard streams, where solver libraries print what they like."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends; elsewhere than on Linux the closed input does it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # 1 = PR_SET_PDEATHSIG


def _load_planner() -> Mapping[bytes, Handler]:
    from api import planning  # noqa: PLC0415 - once the channel is safe from prints

    planning.warm_up()
    return planning.HANDLERS


if __name__ == "__main__":
    main(_load_planner)
