"""Rate limits: so many at once, then evenly; on a clock of the test's."""

from __future__ import annotations

import pytest

from api.security.rate_limits import RateLimiter


class Clock:
    """Seconds that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Now."""
        return self.now


def test_a_minutes_worth_at_once_then_one_an_interval() -> None:
    """Of 60 a minute 60 pass at once, the next after a second; a refused one does not count."""
    clock = Clock()
    limiter = RateLimiter(60, clock=clock)
    assert [limiter.wait_s("a") for _ in range(60)] == [0] * 60
    assert [limiter.wait_s("a"), limiter.wait_s("a")] == pytest.approx([1, 1])
    assert limiter.is_exhausted("a")
    clock.now += 1
    assert not limiter.is_exhausted("a")
    assert limiter.wait_s("a") == 0
    assert limiter.wait_s("a") == pytest.approx(1)


def test_clients_do_not_share() -> None:
    """What one client uses up is not missing for another."""
    limiter = RateLimiter(1, clock=Clock())
    assert [limiter.wait_s("a"), limiter.wait_s("b")] == [0, 0]
    assert limiter.wait_s("a") == pytest.approx(60)
    assert not limiter.is_exhausted("c")


def test_a_pause_gives_back_no_more_than_a_minutes_worth() -> None:
    """After a day of silence a client may send as many at once as on its first."""
    clock = Clock()
    limiter = RateLimiter(3, clock=clock)
    for _ in range(2):
        assert [limiter.wait_s("a") > 0 for _ in range(4)] == [False, False, False, True]
        clock.now += 86_400


def test_zero_is_no_limit() -> None:
    """Without a limit nothing is remembered or refused."""
    limiter = RateLimiter(0)
    assert not any(limiter.wait_s("a") for _ in range(1000))
    assert not limiter.is_exhausted("a")


def test_the_number_of_clients_remembered_is_bounded() -> None:
    """The client longest not seen is forgotten first."""
    limiter = RateLimiter(1, capacity=2, clock=Clock())
    for client in ("a", "b", "c"):
        limiter.wait_s(client)
    assert not limiter.is_exhausted("a")
    assert limiter.is_exhausted("b")
