"""The gate that every request passes before any route sees it: who asks, may they, not too often, not too slowly."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import HostError, KeyMissingError, LongPathError, RateLimitError, ScopeError, SlowRequestError
from api.observability.telemetry import Telemetry
from api.problems import problem_of
from api.security.addresses import client_of, is_loopback, is_loopback_host_header, is_network_address
from api.security.authenticator import Authenticator, Principal
from api.security.rate_limits import RateLimiter
from api.security.rechecks import KeyedSend, WithdrawnError
from api.security.scopes import Access, required_access
from planner.errors import ReplanError

MAX_PATH_LENGTH = 2048
"""Letters of the longest path that is looked at; ids and workers' names are far shorter."""
_FETCH = ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """How much one client may ask for, and how slowly.

    Parameters
    ----------
    read_rate, change_rate, refusal_rate
        Requests a minute that only fetch, that may change something, and that are refused for their key; 0 for no limit.
    body_timeout_s
        Seconds in which a request's body must arrive.
    """

    read_rate: int
    change_rate: int
    refusal_rate: int
    body_timeout_s: float


class Gate:
    """Middleware that lets requests through or answers them with a problem.

    Parameters
    ----------
    app
        What lies behind the gate.
    authenticator
        Who checks keys; ``None`` where none are asked for, which is for servers that listen on loopback only.
    limits
        How much one client may ask for.
    telemetry
        Where refusals are counted.
    """

    def __init__(
        self, app: ASGIApp, *, authenticator: Authenticator | None, limits: ClientLimits, telemetry: Telemetry
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._reads = RateLimiter(limits.read_rate)
        self._changes = RateLimiter(limits.change_rate)
        self._refusals = RateLimiter(limits.refusal_rate)
        self._body_timeout_s = limits.body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            principal = await self._admit(scope)
        except ReplanError as error:
            self._telemetry.request_refused(error.code)
            response = problem_of(error)
            if _has_body(scope):
                response.headers["Connection"] = "close"  # nobody will read it
            await response(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        if _has_body(scope):
            receive = _BodyDeadline(receive, self._body_timeout_s)
        # What was asked to be changed may be changed by now, so the answer to that is never withheld.
        if principal is None or scope["method"] not in _FETCH:
            await self._app(scope, receive, send)
        else:
            await self._answer_keyed(scope, receive, send)

    async def _answer_keyed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for as long as its key holds: long polls and streams must not go on with one that was revoked."""
        keyed = KeyedSend(send, lambda: self._require_key(scope))
        try:
            await self._app(scope, receive, keyed)
        except WithdrawnError as error:
            self._telemetry.request_refused(error.reason.code)
            if keyed.has_started:
                await keyed.end()
            else:
                await problem_of(error.reason)(scope, receive, send)

    async def _require_key(self, scope: Scope) -> None:
        """Check again the key of a request that was let in."""
        text = _bearer_token(scope)
        assert self._authenticator is not None
        assert text is not None
        if await self._authenticator.authenticate(text) is None:
            raise _unknown_key()

    async def _admit(self, scope: Scope) -> Principal | None:
        if len(scope["path"]) > MAX_PATH_LENGTH:
            raise LongPathError(f"the path has {len(scope['path'])} letters; expected at most {MAX_PATH_LENGTH}")
        access = required_access(scope["method"], scope["path"])
        if access.scope is None:
            return None
        peer = scope["client"][0] if scope.get("client") else ""
        principal = None
        if self._authenticator is None:
            _require_loopback_host(scope, peer)
        else:
            principal = await self._identify(self._authenticator, scope, peer, access)
            if principal is not None and principal.scope < access.scope:
                raise ScopeError(
                    f"key {principal.key_id} has the scope {principal.scope.label}; this asks for {access.scope.label}"
                )
        limiter = self._reads if scope["method"] in _FETCH else self._changes
        wait_s = limiter.wait_s(client_of(peer) if principal is None else principal.key_id)
        if wait_s:
            raise RateLimitError("this client has sent more requests than a minute allows", wait_s=wait_s)
        return principal

    async def _identify(
        self, authenticator: Authenticator, scope: Scope, peer: str, access: Access
    ) -> Principal | None:
        text = _bearer_token(scope)
        if text is None:
            if access.is_open_on_loopback and is_loopback(peer) and not _is_forwarded(scope):
                return None
            self._count_refusal(peer)
            raise KeyMissingError("the request carries no API key", hint="send it as Authorization: Bearer rpk_...")
        # Keys that were good are looked up again even where others of the same address send bad ones.
        if self._refusals.is_exhausted(client_of(peer)) and not authenticator.remembered(text):
            self._count_refusal(peer)
        principal = await authenticator.authenticate(text)
        if principal is None:
            self._count_refusal(peer)
            raise _unknown_key()
        return principal

    def _count_refusal(self, peer: str) -> None:
        wait_s = self._refusals.wait_s(client_of(peer))
        if wait_s:
            raise RateLimitError("this address has sent too many requests without a good key", wait_s=wait_s)


class _BodyDeadline:
    """What receives a request's messages, for as long as its body has time to arrive."""

    def __init__(self, receive: Receive, timeout_s: float) -> None:
        self._receive = receive
        self._timeout_s = timeout_s
        self._until = asyncio.get_running_loop().time() + timeout_s
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError as error:
            raise SlowRequestError(f"the body did not arrive within {self._timeout_s:g} s") from error
        self._is_whole = not message.get("more_body", False)
        return message


def _unknown_key() -> KeyMissingError:
    return KeyMissingError("the service does not know this API key, or it was revoked")


def _bearer_token(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
    return None


def _is_forwarded(scope: Scope) -> bool:
    """Whether a proxy has sent the request on: then its peer is not who asks."""
    return any(name in (b"x-forwarded-for", b"forwarded") for name, _ in scope["headers"])


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
        for name, value in scope["headers"]
    )


def _require_loopback_host(scope: Scope, peer: str) -> None:
    """Refuse what a browser sends that a foreign name led to loopback (DNS rebinding); in-process clients have no address."""
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    if is_network_address(peer) and not is_loopback_host_header(host):
        raise HostError(
            f"a server without API keys was asked as {host[:80]!r}; expected localhost or a loopback address",
            hint="set REPLAN_REQUIRE_KEYS=true to serve it by another name",
        )
