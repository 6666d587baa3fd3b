"""When a request is sent again: the exchange with a service as a generator that does no input or output itself.

A flow yields what is to be done next, an :class:`Attempt` or a :class:`Pause`, gets the outcome of an attempt sent in, and
returns what was asked for. Both clients drive the same flows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from replan_client.answers import Answer
from replan_client.calls import Call
from replan_client.errors import AnswerError, ArgumentError, ClientError, ServiceUnreachableError
from replan_client.memory import AnswerCache
from replan_client.problems import COME_AGAIN, read_problem

T = TypeVar("T")
_FIRST_PAUSE_S = 0.2
_MOST_PAUSE_S = 10.0
_SHORTEST_ATTEMPT_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Send a request once, and read the whole answer within ``timeout_s`` seconds."""

    method: str
    target: str
    headers: Mapping[str, str]
    content: bytes | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt without a whole answer, and why."""

    reason: str


Outcome: TypeAlias = Answer | Lost
Flow: TypeAlias = Generator[Attempt | Pause, Outcome | None, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long a request is tried.

    Parameters
    ----------
    attempt_s
        Seconds that one try may take beside what the service holds it back for, above 0.
    total_s
        Seconds that all tries may take together beside that, at least ``attempt_s``; pauses grow from 0.2 s to 10 s.
    clock
        Monotonic seconds.

    Raises
    ------
    ArgumentError
        If a time is out of range.
    """

    attempt_s: float = 10.0
    total_s: float = 120.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not 0 < self.attempt_s <= self.total_s < float("inf"):
            raise ArgumentError(
                f"the times are {self.attempt_s} s for one try and {self.total_s} s for all; expected both above 0, finite, "
                "the second at least the first"
            )


def exchange(
    call: Call[T], policy: RetryPolicy, cache: AnswerCache, *, address: str, is_single: bool = False
) -> Flow[T]:
    """Send a request until there is an answer; return what it means.

    Parameters
    ----------
    call
        The request; it may be sent several times.
    policy
        How long it is tried.
    cache
        Answers that a tag stands for.
    address
        Where the service is, for messages.
    is_single
        Whether it is tried once only.

    Raises
    ------
    ServiceUnreachableError
        If there is no whole answer in time.
    ProblemError
        What the service refuses or cannot do.
    AnswerError
        If what answers is not RePlan's service.
    """
    held = cache.get(call.target) if call.is_cached else None
    tags = {} if held is None else {"If-None-Match": held.headers["etag"]}
    until = policy.clock() + policy.total_s + call.hold_s
    attempt = 0
    while True:
        attempt += 1
        left_s = max(until - policy.clock(), _SHORTEST_ATTEMPT_S)
        outcome = yield Attempt(
            method=call.method,
            target=call.target,
            headers={**call.headers, **tags},
            content=call.content,
            timeout_s=min(policy.attempt_s + call.hold_s, left_s),
        )
        assert outcome is not None
        if isinstance(outcome, Answer) and outcome.status not in COME_AGAIN:
            return _understand(call, outcome, held, cache)
        pause_s = _pause_s(attempt, outcome)
        if is_single or policy.clock() + pause_s >= until:
            raise _given_up(outcome, attempt, policy, address)
        yield Pause(pause_s)


def backoff_s(attempt: int) -> float:
    """Seconds to wait after the try of this number, from 1 on: twice as long each time, by half more or less."""
    return float(min(_FIRST_PAUSE_S * 2 ** min(attempt - 1, 16), _MOST_PAUSE_S) * random.uniform(0.5, 1.5))


def _understand(call: Call[T], answer: Answer, held: Answer | None, cache: AnswerCache) -> T:
    if answer.status == 304:
        if held is None:
            raise AnswerError("the service says that nothing changed, though it was not asked so")
        return call.read(held)
    if not 200 <= answer.status < 300:
        raise read_problem(answer.status, answer.body)
    meaning = call.read(answer)
    if call.is_cached:
        cache.put(call.target, answer)
    return meaning


def _pause_s(attempt: int, outcome: Outcome) -> float:
    asked = outcome.headers.get("retry-after", "") if isinstance(outcome, Answer) else ""
    return max(float(asked) if asked.isdecimal() and len(asked) < 9 else 0.0, backoff_s(attempt))


def _given_up(outcome: Outcome, attempt: int, policy: RetryPolicy, address: str) -> ClientError:
    if isinstance(outcome, Answer):
        return read_problem(outcome.status, outcome.body)
    tries = "once" if attempt == 1 else f"{attempt} times within {policy.total_s:g} s"
    return ServiceUnreachableError(
        f"no answer from {address}: {outcome.reason} (tried {tries})",
        hint="see that the service runs and the URL is right; nothing is lost by trying again",
    )
