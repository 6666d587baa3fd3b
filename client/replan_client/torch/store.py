"""``python -m replan_client.torch.store --port 29400``: host the store that the workers of a job share, until it is told to stop.

Start it where it outlives every worker, beside the service for example, and anew for each start of a job, since the store has to
be empty then. It prints its port once it listens. Whoever reaches the port may read and write: keep it inside the cluster.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from torch.distributed import TCPStore


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 once it was stopped, 2 where the port cannot be listened on."""
    parser = argparse.ArgumentParser(
        prog="python -m replan_client.torch.store", description="Host the store that the workers of a job share."
    )
    parser.add_argument("--port", type=int, default=29400, metavar="N", help="port; 0 for any free one (29400)")
    port = parser.parse_args(arguments).port
    if not 0 <= port <= 65535:
        parser.error(f"--port {port}: expected 0 to 65535")
    try:
        store = TCPStore("localhost", port, None, True, wait_for_workers=False)
    except RuntimeError as error:
        sys.stderr.write(f"the store cannot listen on port {port}: {error}\n")
        return 2
    is_over = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        is_over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    sys.stdout.write(f"store on port {store.port}\n")
    sys.stdout.flush()
    is_over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
