"""Run the service: listen, say where, serve until told to stop, leave nothing running behind."""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import uvicorn

from api.app import create_app
from api.connections import ConnectionLimits, limited_protocol
from api.drain import Drain
from api.observability.logs import configure
from api.open_files import raise_open_files
from api.security.addresses import read_proxies
from api.security.keys import ApiKey
from api.security.stored_keys import prepare_keys
from api.settings import Settings, unknown_variables
from api.store import Store, parse_url
from planner.errors import ListenError, OptionError

_LOG = logging.getLogger("replan.api")
_BACKLOG = 2048
_GC_THRESHOLDS = (5_000, 10, 1_000)
"""Allocations before a collection of the youngest generation, and collections of each generation before one of the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """What is told once a server listens.

    Parameters
    ----------
    url
        Where it answers.
    store
        What it keeps things in, without any password.
    key
        The API key that was made, if any; it can be read here and nowhere else.
    """

    url: str
    store: str
    key: ApiKey | None


def run(settings: Settings, *, create_key: bool = False, on_listen: Callable[[Listening], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; requests being answered get to finish, and solver processes are gone at the end.

    Parameters
    ----------
    settings
        Everything that may be chosen.
    create_key
        Whether to make an admin key where the store has none.
    on_listen
        Called once it listens.

    Raises
    ------
    ListenError
        If the address cannot be listened on.
    OptionError
        If clients need API keys and there is none.
    StoreError
        If the store cannot be opened and written.
    """
    configure(settings.log_level, settings.log_format)
    for name in unknown_variables(os.environ):
        _LOG.warning("%s is set, but nothing reads it; docs/settings.md lists what is read", name)
    proxies = read_proxies(settings.trusted_proxies)
    with listen(settings.host, settings.port, user_timeout_s=settings.write_timeout_s) as listener:
        host, port = listener.getsockname()[:2]
        # Whether clients need keys is a matter of the address that a name stood for.
        settings = settings.model_copy(update={"host": host, "port": port})
        key = _prepare_store(settings, create_key=create_key)  # one that cannot be used is told before anything starts
        server = _server(settings, proxies)
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        if on_listen is not None:
            on_listen(Listening(url=url, store=_store_name(settings.store), key=key))
        _LOG.info("listening on %s", url)
        _collect_less()
        with _stopped_by_signals(server):
            server.run(sockets=[listener])


def _collect_less() -> None:
    """Keep the garbage collector from looking again and again at what stays.

    A full collection of this process holds every request up for 50 to 400 ms and finds nothing: requests leave no cycles that
    outlive the young generations.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _server(settings: Settings, proxies: list[str]) -> DrainingServer:
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        http=limited_protocol(_connection_limits(settings)),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        # Fractions of seconds are as good as whole ones.
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.shutdown_grace_s,  # type: ignore[arg-type]
        lifespan="on",
    )
    return DrainingServer(config, drain=app.state.drain, delay_s=settings.drain_delay_s)


class DrainingServer(uvicorn.Server):
    """A web server that, told to stop, first says so for a while, then lets go of those who wait, and answers the rest.

    Parameters
    ----------
    config
        The web server's own.
    drain
        Begun when the server is told to stop.
    delay_s
        Seconds from then on in which it still listens; a second signal ends them.
    """

    def __init__(self, config: uvicorn.Config, *, drain: Drain, delay_s: float) -> None:
        super().__init__(config)
        self._drain = drain
        self._delay_s = delay_s
        self._stop_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note that the server is to stop; runs within whatever the signal interrupted, so it does no more."""
        if self._stop_at is None:
            self._captured_signals.append(sig)
            self._stop_at = time.monotonic() + self._delay_s
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Begin to drain once told to stop, and stop when it is time; called ten times a second."""
        if self._stop_at is not None:
            if not self._drain.has_begun:
                _LOG.info("told to stop; no longer ready")
                self._drain.begin()
            if time.monotonic() >= self._stop_at:
                self.should_exit = True
        return await super().on_tick(counter)


def _prepare_store(settings: Settings, *, create_key: bool) -> ApiKey | None:
    store = Store(settings.store)
    try:
        return prepare_keys(store, settings, create=create_key)
    finally:
        store.close()


def _store_name(store: str) -> str:
    return parse_url(store).render_as_string(hide_password=True) if "://" in store else store


def _connection_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        max_connections=raise_open_files(settings.max_connections),
        max_connections_per_address=settings.max_connections_per_address,
        max_header_bytes=settings.max_header_bytes,
        header_timeout_s=settings.header_timeout_s,
        write_timeout_s=settings.write_timeout_s,
    )


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


def listen(host: str, port: int, *, user_timeout_s: float) -> socket.socket:
    """Open a listening socket.

    Parameters
    ----------
    host, port
        Where.
    user_timeout_s
        Seconds after which the kernel gives up a connection whose other side takes nothing of what was sent, or is gone.

    Raises
    ------
    OptionError
        If the port is no port.
    ListenError
        If the address is not one of this machine's, or is in use or reserved.
    """
    if not 0 <= port <= 65_535:
        raise OptionError(f"port is {port}; expected 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ListenError(f"host {host!r} has no address: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(user_timeout_s * 1000))
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        with suppress(OSError):
            listener.close()
        hint = "name another --port" if error.errno == errno.EADDRINUSE else None
        raise ListenError(f"cannot listen on {host} port {port}: {error.strerror}", hint=hint) from error
    return listener
