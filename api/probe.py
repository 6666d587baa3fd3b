"""Asks the server of this container whether it is well: ``python -P -m api.probe /readyz``; exit status 0 where it is.

It asks over loopback, which needs no API key, and loads only the standard library's client, since it runs every few seconds.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping, Sequence

TIMEOUT_S = 4.0


def probe(path: str, environment: Mapping[str, str]) -> bool:
    """Whether the server on this machine answers a path with status 200; never by a proxy of the environment."""
    try:
        port = int(environment.get("REPLAN_PORT") or 8080)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException, ValueError):
        return False


def main(arguments: Sequence[str]) -> int:
    """Exit status for the path that is the only argument."""
    return 0 if probe(arguments[0] if arguments else "/healthz", os.environ) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
