"""Run the service: listen, say where, serve until told to stop, leave nothing running behind."""

from __future__ import annotations

import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from api.app import create_app
from api.settings import Settings, default_solver_processes
from api.store import Store
from planner.errors import OptionError

_LOG = logging.getLogger("replan.api")
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8080
_BACKLOG = 2048


def run(
    host: str = LOOPBACK,
    port: int = DEFAULT_PORT,
    store_path: Path | str = "replan.db",
    *,
    solver_processes: int | None = None,
    queue_limit: int = 64,
    max_deadline_s: float = 60.0,
    log_level: str = "info",
    on_listen: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests being answered get to finish, and solver processes are gone at the end.

    Parameters
    ----------
    host
        Address to listen on. There is no authentication: anything but loopback is for closed networks.
    port
        Port, 0 to 65,535; 0 for any free one.
    store_path
        SQLite file of plans.
    solver_processes
        Number of solver processes; ``None`` for one a CPU less one.
    queue_limit, max_deadline_s
        See :class:`api.settings.Settings`.
    log_level
        Level of the log on standard error: critical, error, warning, info or debug.
    on_listen
        Called with the server's URL once it listens.

    Raises
    ------
    OptionError
        If the address cannot be listened on, or an option is out of range.
    StoreError
        If the store cannot be opened and written.
    """
    settings = Settings(
        store_path=Path(store_path),
        solver_processes=default_solver_processes() if solver_processes is None else solver_processes,
        queue_limit=queue_limit,
        max_deadline_s=max_deadline_s,
    )
    Store(settings.store).close()  # a store that cannot be used is told before anything starts
    listener = listen(host, port)
    bound_host, bound_port = listener.getsockname()[:2]
    url = f"http://[{bound_host}]:{bound_port}" if ":" in bound_host else f"http://{bound_host}:{bound_port}"
    config = uvicorn.Config(
        create_app(settings),
        log_level=log_level,
        log_config=_log_config(log_level),
        timeout_graceful_shutdown=int(max(1, settings.shutdown_grace_s)),
        lifespan="on",
    )
    if on_listen is not None:
        on_listen(url)
    _LOG.info("listening on %s", url)
    server = uvicorn.Server(config)
    with listener, _stopped_by_signals(server):
        server.run(sockets=[listener])


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Stop the server on SIGINT and SIGTERM also before it runs.

    It raises the signal that stopped it once more at its end; that is caught too: being told to stop is no failure.
    """
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Raises
    ------
    OptionError
        If the address is not one of this machine's, or is in use or reserved.
    """
    if not 0 <= port <= 65_535:
        raise OptionError(f"port is {port}; expected 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise OptionError(f"host {host!r} has no address: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        with suppress(OSError):
            listener.close()
        hint = "name another --port" if error.errno == errno.EADDRINUSE else None
        raise OptionError(f"cannot listen on {host} port {port}: {error.strerror}", hint=hint) from error
    return listener


def _log_config(level: str) -> dict[str, object]:
    """Everything on standard error, one line a record; standard output stays the command's."""
    names = ("uvicorn", "replan")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "loggers": {name: {"handlers": ["stderr"], "level": level.upper(), "propagate": False} for name in names},
    }
