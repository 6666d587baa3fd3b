"""What a key may do, and what each route asks for.

A route that stands in no rule asks for the largest scope, so one that was forgotten here is closed, not open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


class Scope(IntEnum):
    """What a key allows; each one includes those below it."""

    READ = 1
    """Fetch jobs, epochs, plans, programs, metrics."""
    REPORT = 2
    """Report failures, acknowledge epochs, ask for plans."""
    ADMIN = 3
    """Register and delete jobs, start and cancel operations, and everything else."""

    @property
    def label(self) -> str:
        """Name in keys, options and messages."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a request has to bring.

    Parameters
    ----------
    scope
        Least scope of its key; ``None`` where no key is needed.
    is_open_on_loopback
        Whether a client on this machine needs no key.
    is_listed
        Whether a rule names the route; where not, ``scope`` is the largest.
    """

    scope: Scope | None
    is_open_on_loopback: bool = False
    is_listed: bool = True


_JOB = "/v1/jobs/[^/]+"
_EPOCH = f"{_JOB}/epochs/[^/]+"
_READ, _REPORT, _ADMIN = (Access(scope=scope) for scope in Scope)
_FETCH = ("GET", "HEAD")
_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], Access], ...] = tuple(
    (methods, re.compile(pattern, re.DOTALL), access)
    for methods, pattern, access in (
        (_FETCH, rf"{_EPOCH}(/plan|/acknowledgements|/programs/.+|/timeline|/trace)?", _READ),
        # The page's own files hold nothing that a key is for.
        (_FETCH, "/healthz|/|/page/[^/]+", Access(scope=None)),
        (_FETCH, "/readyz|/metrics", Access(scope=Scope.READ, is_open_on_loopback=True)),
        (_FETCH, "/openapi.json", _READ),
        (_FETCH, rf"/v1/jobs|{_JOB}(/epochs|/stream|/operations|/cluster|/heat)?", _READ),
        (_FETCH, "/v1/overview(/stream)?", _READ),
        # Changes nothing, and searches only in the background of real events.
        (("POST",), f"{_JOB}/what-if", _READ),
        (_FETCH, "/v1/operations/[^/]+", _READ),
        (_FETCH, "/v1/plans/[^/]+(/summary|/programs/.+)?", _READ),
        (("POST",), rf"{_JOB}/events|{_EPOCH}/acknowledgements|/v1/plans", _REPORT),
        (("PUT", "DELETE"), _JOB, _ADMIN),
        (("POST",), rf"{_JOB}/precompute|/v1/operations/[^/]+/cancel", _ADMIN),
    )
)
_UNLISTED = Access(scope=Scope.ADMIN, is_listed=False)


def required_access(method: str, path: str) -> Access:
    """What a request with this method and decoded path has to bring.

    Examples
    --------
    >>> required_access("POST", "/v1/jobs/llama/events").scope
    <Scope.REPORT: 2>
    >>> required_access("GET", "/v1/secrets").scope
    <Scope.ADMIN: 3>
    """
    for methods, pattern, access in _RULES:
        if method in methods and pattern.fullmatch(path):
            return access
    return _UNLISTED


def scope_named(name: str) -> Scope | None:
    """Scope of a name; ``None`` where there is none of that name."""
    return next((scope for scope in Scope if scope.label == name), None)
