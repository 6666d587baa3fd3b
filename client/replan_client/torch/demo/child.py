"""A process of the demonstration, as it sees itself. It ends when the one that started it does."""

from __future__ import annotations

import importlib
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from replan_client.errors import ClientError

_LOG_FORMAT = "%(asctime)s %(processName)s %(levelname)s %(message)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """Its function came to the end."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Its function raised one of the client's errors."""

    code: str
    message: str
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """Its function raised anything else."""

    traceback: str


class Child:
    """What its function may use."""

    def __init__(self, name: str, pipe: Connection) -> None:
        self.name = name
        self._pipe = pipe
        self._heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="listen", daemon=True).start()

    def tell(self, value: Any) -> None:
        """Tell the process that started this one something."""
        self._pipe.send(value)

    def hear(self, timeout_s: float | None) -> Any:
        """What that process says next, once it does; ``None`` after a time-out."""
        try:
            return self._heard.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _listen(self) -> None:
        while True:
            try:
                self._heard.put(self._pipe.recv())
            except (EOFError, OSError):
                # Whoever started this process is gone, even by SIGKILL: nobody else would end it.
                os._exit(1)


def run_child(name: str, function: str, arguments: tuple[Any, ...], pipe: Connection, log: str) -> None:
    """Run ``function``, written ``module:name``, in this process, which was made for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it ends it
    _log_to(log)
    child = Child(name, pipe)
    try:
        value = _prepare(function)(child, *arguments)
    except ClientError as error:
        child.tell(Refused(code=error.code, message=error.message, hint=error.hint))
    except BaseException:
        child.tell(Crashed(traceback=traceback.format_exc()))
    else:
        child.tell(Returned(value=value))


def _prepare(function: str) -> Callable[..., Any]:
    """The function; named and not given, since whoever starts processes does not import torch."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    # Connections stay on this machine, whatever its name resolves to.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _log_to(path: str) -> None:
    """Write all that is logged, and what libraries print, to the end of a file."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(number, stream)
    os.close(number)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_LOG_FORMAT)
