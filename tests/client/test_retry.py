"""The exchange with a service, step by step, without a network: when it pauses, when it goes on, when it ends."""

from __future__ import annotations

import json

import pytest
from replan_client.answers import Answer
from replan_client.calls import Call
from replan_client.errors import ArgumentError, ServiceUnreachableError, UnavailableError
from replan_client.memory import AnswerCache
from replan_client.retry import Attempt, Flow, Lost, Outcome, Pause, RetryPolicy, backoff_s, exchange


class Clock:
    """Time that passes where the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds that have passed."""
        return self.now


CALL = Call(method="GET", target="/v1/x", read=lambda answer: answer.body)
BUSY = json.dumps({"code": "overloaded", "detail": "busy"}).encode()


def begin(call: Call[bytes] = CALL, *, total_s: float = 100.0, is_single: bool = False) -> tuple[Flow[bytes], Clock]:
    """An exchange and its clock."""
    clock = Clock()
    policy = RetryPolicy(attempt_s=10, total_s=total_s, clock=clock)
    return exchange(call, policy, AnswerCache(), address="http://x", is_single=is_single), clock


def step(flow: Flow[bytes], clock: Clock, outcome: Outcome | None, *, took_s: float = 0.0) -> Attempt | Pause | bytes:
    """Go on with an outcome that took some time; what comes next, or what the exchange returned."""
    clock.now += took_s
    try:
        following = flow.send(outcome)
    except StopIteration as done:
        returned: bytes = done.value
        return returned
    if isinstance(following, Pause):
        clock.now += following.seconds
    return following


def test_an_answer_ends_it() -> None:
    """One attempt with the time of one, then what the answer means."""
    flow, clock = begin()
    first = step(flow, clock, None)
    assert isinstance(first, Attempt)
    assert (first.method, first.target, first.timeout_s) == ("GET", "/v1/x", 10)
    assert step(flow, clock, Answer(200, {}, b"yes")) == b"yes"


def test_pauses_grow_and_the_last_attempt_has_what_is_left() -> None:
    """Pauses double from 0.2 s by half more or less up to 10 s; no attempt goes beyond the time for all."""
    flow, clock = begin(total_s=30)
    pauses: list[float] = []
    following = step(flow, clock, None)
    with pytest.raises(ServiceUnreachableError, match=r"no answer from http://x: gone \(tried \d+ times within 30 s\)"):
        while True:
            assert isinstance(following, Attempt)
            assert clock.now + following.timeout_s <= 30
            pause = step(flow, clock, Lost("gone"), took_s=0.5)
            assert isinstance(pause, Pause)
            pauses.append(pause.seconds)
            following = step(flow, clock, None)
    for number, seconds in enumerate(pauses):
        assert 0.5 <= seconds / min(0.2 * 2**number, 10) <= 1.5
    assert len(pauses) >= 5


def test_the_service_says_how_long_to_wait() -> None:
    """What it asks for is waited for, unless that is beyond the time; then its own problem is raised."""
    flow, clock = begin()
    step(flow, clock, None)
    asked = step(flow, clock, Answer(503, {"retry-after": "7"}, BUSY))
    assert asked == Pause(7)
    assert isinstance(step(flow, clock, None), Attempt)
    with pytest.raises(UnavailableError, match="busy") as caught:
        step(flow, clock, Answer(429, {"retry-after": "1000"}, BUSY))
    assert (caught.value.code, caught.value.status) == ("overloaded", 429)


@pytest.mark.parametrize("asked", ["", "soon", "-1", "9" * 30])
def test_waits_that_are_none_count_for_nothing(asked: str) -> None:
    """Only a number of seconds is one."""
    flow, clock = begin()
    step(flow, clock, None)
    pause = step(flow, clock, Answer(503, {"retry-after": asked}, BUSY))
    assert isinstance(pause, Pause)
    assert pause.seconds <= 0.3


def test_held_answers_have_their_time_on_top() -> None:
    """What the service may hold back counts neither to an attempt nor to all."""
    flow, clock = begin(Call(method="GET", target="/v1/x", hold_s=30, read=lambda answer: answer.body))
    first = step(flow, clock, None)
    assert isinstance(first, Attempt)
    assert first.timeout_s == 40


def test_a_single_attempt_is_one() -> None:
    """Whoever tries again by itself gets the failure at once."""
    flow, clock = begin(is_single=True)
    step(flow, clock, None)
    with pytest.raises(ServiceUnreachableError, match="tried once"):
        step(flow, clock, Lost("gone"))


def test_tags_go_with_the_next_request() -> None:
    """What is kept is asked for by its tag, and given again where nothing changed; an answer of another kind is not kept."""
    cache, policy = AnswerCache(), RetryPolicy(clock=Clock())
    call = Call(method="GET", target="/v1/x", is_cached=True, read=lambda answer: answer.body)

    def ask(answer: Answer) -> tuple[str | None, bytes]:
        flow = exchange(call, policy, cache, address="http://x")
        attempt = next(flow)
        assert isinstance(attempt, Attempt)
        with pytest.raises(StopIteration) as done:
            flow.send(answer)
        return attempt.headers.get("If-None-Match"), done.value.value

    assert ask(Answer(200, {}, b"untagged")) == (None, b"untagged")
    assert ask(Answer(200, {"etag": '"1"'}, b"one")) == (None, b"one")
    assert ask(Answer(304, {"etag": '"1"'}, b"")) == ('"1"', b"one")
    assert ask(Answer(200, {"etag": '"2"'}, b"two")) == ('"1"', b"two")
    assert ask(Answer(304, {}, b"")) == ('"2"', b"two")
    assert ask(Answer(200, {}, b"untagged")) == ('"2"', b"untagged")
    assert ask(Answer(200, {}, b"untagged")) == (None, b"untagged")


def test_backoff_is_bounded() -> None:
    """However often it was tried."""
    assert all(backoff_s(attempt) <= 15 for attempt in (1, 10, 1000, 10**6))


@pytest.mark.parametrize("times", [(0, 1), (-1, 1), (2, 1), (1, float("inf")), (float("nan"), 1)])
def test_times_out_of_range(times: tuple[float, float]) -> None:
    """Both above 0, finite, the second at least the first."""
    with pytest.raises(ArgumentError, match="for one try"):
        RetryPolicy(attempt_s=times[0], total_s=times[1])
