"""Runs a command for as long as its own standard input is open: ``python -m replan_client.torch.demo.lifeline COMMAND...``.

The input closes when whoever holds it ends, even by SIGKILL. So the command is not left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

_STOP_S = 10.0


def main(command: Sequence[str]) -> int:
    """Run the command and give its exit status."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # Whoever holds the input decides.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_stop_at_end_of_input, args=(process,), daemon=True).start()
    return process.wait()


def _stop_at_end_of_input(process: subprocess.Popen[bytes]) -> None:
    # Not by sys.stdin, whose lock this thread would hold at the end of the interpreter.
    while os.read(0, 4096):
        pass
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
