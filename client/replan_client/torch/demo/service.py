"""A service in a process of its own, for as long as the demonstration lasts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from replan_client.torch.demo.errors import DemoFailedError

_LOOK_S = 0.05
_STOP_S = 15.0
_SHOWN = 2000


class Service:
    """A running ``replan serve``; a context manager that stops it.

    Parameters
    ----------
    command
        The command without options.
    folder
        Where its store lies.
    log
        File that takes what it logs.
    """

    def __init__(self, command: Sequence[str], folder: Path, *, log: Path) -> None:
        self._announced, self._log = folder / "service.json", log
        options = ["--port", "0", "--store", str(folder / "service.db"), "--json", "--log-level", "warning"]
        lifeline = [sys.executable, "-P", "-m", "replan_client.torch.demo.lifeline"]
        # Settings of another service, which the environment may hold, are not meant for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REPLAN_")}
        with self._announced.open("wb") as output, log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*lifeline, *command, *options],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_for_url(self, limit_s: float) -> str:
        """Where it listens, once it does.

        Raises
        ------
        DemoFailedError
            If it ends, or does not listen in time.
        """
        until = time.monotonic() + limit_s
        while self._process.poll() is None and time.monotonic() < until:
            text = self._announced.read_text()
            if text.rstrip().endswith("}"):
                return str(json.loads(text)["url"])
            time.sleep(_LOOK_S)
        said = self._log.read_text(errors="replace")[-_SHOWN:].strip()
        raise DemoFailedError(f"the service did not start{f': {said}' if said else ''}")

    def close(self) -> None:
        """Stop it, and wait until it has."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait(_STOP_S)
