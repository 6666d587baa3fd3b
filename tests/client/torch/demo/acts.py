"""What processes of these tests do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from replan_client.errors import ArgumentError
from replan_client.torch.demo.child import Child


def answer(child: Child, value: int) -> tuple[str, int, object]:
    """Say something, wait for a word, and return."""
    child.tell("begun")
    return child.name, value, child.hear(None)


def refuse(_child: Child) -> None:
    """Raise one of the client's errors."""
    raise ArgumentError("no such thing", hint="ask for another")


def crash(_child: Child) -> None:
    """Raise anything else."""
    raise ZeroDivisionError("a bug")


def die(_child: Child) -> None:
    """End without a word, having logged something."""
    sys.stderr.write("last words\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def hang(child: Child) -> None:
    """Say nothing more; SIGINT does not end it."""
    os.kill(os.getpid(), signal.SIGINT)
    child.tell(os.getpid())
    time.sleep(600)


def mutter(_child: Child) -> int:
    """Print things by a library's and by a child's own means."""
    print("printed")
    subprocess.run(["echo", "echoed"], check=True)
    return 0
