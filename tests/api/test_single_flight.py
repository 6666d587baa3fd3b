"""Work done once for all who ask for it at the same time."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging

import pytest

from api.single_flight import SingleFlight
from tests.loops import in_loop


class Work:
    """Work that ends when it is told to; counts how often it was begun."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.was_cancelled = False
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        """Begin."""
        self.num_begun += 1
        try:
            return await self._end
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    def end(self, outcome: str | Exception) -> None:
        """End with a result or an error."""
        if isinstance(outcome, str):
            self._end.set_result(outcome)
        else:
            self._end.set_exception(outcome)


async def turn() -> None:
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


@in_loop
async def test_who_asks_at_once_shares_the_work() -> None:
    """Three ask before the end, and get one result; another key is other work."""
    flights: SingleFlight[str, str] = SingleFlight()
    work, other = Work(), Work()
    waiting = [asyncio.create_task(flights.join("key", work)) for _ in range(3)]
    apart = asyncio.create_task(flights.join("other", other))
    await turn()
    assert "key" in flights
    assert list(flights) == ["key", "other"]
    work.end("done")
    other.end("done too")
    assert await asyncio.gather(*waiting, apart) == ["done"] * 3 + ["done too"]
    assert (work.num_begun, other.num_begun) == (1, 1)
    assert list(flights) == []


@in_loop
async def test_who_asks_after_the_end_begins_anew() -> None:
    """Results are not kept."""
    flights: SingleFlight[str, str] = SingleFlight()
    for outcome in ("first", "second"):
        work = Work()
        work.end(outcome)
        assert await flights.join("key", work) == outcome


@pytest.mark.parametrize("num_leaving", [1, 2, 3])
@in_loop
async def test_who_goes_away_takes_the_work_from_nobody(num_leaving: int) -> None:
    """The first ones are cancelled, the one that began it too: the others get the result, and the work comes to its end."""
    flights: SingleFlight[str, str] = SingleFlight()
    work = Work()
    waiting = [asyncio.create_task(flights.join("key", work)) for _ in range(3)]
    await turn()
    for task in waiting[:num_leaving]:
        task.cancel()
    await turn()
    assert "key" in flights
    # Whoever comes now joins what goes on, even where everybody had left.
    late = asyncio.create_task(flights.join("key", work))
    await turn()
    work.end("done")
    outcomes = await asyncio.gather(*waiting, late, return_exceptions=True)
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [
        *(number < num_leaving for number in range(3)),
        False,
    ]
    assert outcomes[num_leaving:] == ["done"] * (4 - num_leaving)
    assert (work.num_begun, work.was_cancelled) == (1, False)


@in_loop
async def test_an_error_reaches_everybody_and_is_not_kept() -> None:
    """All who wait get it, each with the traceback of its own waiting; the next one begins anew."""
    flights: SingleFlight[str, str] = SingleFlight()
    work = Work()
    waiting = [asyncio.create_task(flights.join("key", work)) for _ in range(3)]
    await turn()
    work.end(ValueError("broken"))
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["broken"] * 3
    again = Work()
    again.end("whole")
    assert await flights.join("key", again) == "whole"


@in_loop
async def test_an_error_that_nobody_waits_for_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """No warning of an exception that was never retrieved."""
    flights: SingleFlight[str, str] = SingleFlight()
    work = Work()
    waiting = asyncio.create_task(flights.join("key", work))
    await turn()
    waiting.cancel()
    await turn()
    with caplog.at_level(logging.WARNING):
        work.end(ValueError("broken"))
        await flights.settle()
        # The task's end tells of what nobody looked at.
        del waiting, work
        gc.collect()
        await turn()
    assert caplog.records == []
    assert list(flights) == []


@in_loop
async def test_released_work_is_not_joined() -> None:
    """Whoever waits gets its outcome, whoever comes begins anew; neither end takes the other's place."""
    flights: SingleFlight[str, str] = SingleFlight()
    old, new = Work(), Work()
    first = asyncio.create_task(flights.join("key", old))
    await turn()
    flights.release("key")
    assert "key" not in flights
    second = asyncio.create_task(flights.join("key", new))
    await turn()
    old.end("old")
    assert await first == "old"
    assert "key" in flights, "the end of the old work leaves the new one alone"
    third = asyncio.create_task(flights.join("key", new))
    await turn()
    new.end("new")
    assert await asyncio.gather(second, third) == ["new", "new"]
    flights.release("key")  # nothing there: nothing happens


@in_loop
async def test_work_can_release_itself_and_tell() -> None:
    """Work that lets later ones begin anew is not joined from then on; the tasks of others never were."""
    flights: SingleFlight[str, str] = SingleFlight()
    seen = []

    async def work() -> str:
        seen.append(flights.is_joined("key"))
        flights.release("key")
        seen.append(flights.is_joined("key"))
        return "done"

    assert await flights.join("key", work) == "done"
    assert seen == [True, False]
    assert not flights.is_joined("key")


@in_loop
async def test_work_may_ask_for_other_keys_but_not_for_its_own() -> None:
    """What would wait for itself for ever fails at once, for all who wait."""
    flights: SingleFlight[str, str] = SingleFlight()
    inner = Work()
    inner.end("inner")

    async def asks(key: str) -> str:
        return await flights.join(key, inner)

    assert await flights.join("outer", lambda: asks("other")) == "inner"
    with pytest.raises(AssertionError, match="'outer' waits for itself"):
        await flights.join("outer", lambda: asks("outer"))
    assert list(flights) == []


@in_loop
async def test_the_work_runs_in_the_context_of_who_began_it() -> None:
    """Its log lines carry the first request's id."""
    flights: SingleFlight[str, str] = SingleFlight()
    request = contextvars.ContextVar("request", default="nobody")
    go = asyncio.Event()

    async def work() -> str:
        await go.wait()
        return request.get()

    async def ask(name: str) -> str:
        request.set(name)
        return await flights.join("key", work)

    waiting = [asyncio.create_task(ask(name)) for name in ("first", "second")]
    await turn()
    go.set()
    assert await asyncio.gather(*waiting) == ["first", "first"]


@in_loop
async def test_closing_cancels_the_work_and_who_waits() -> None:
    """Released work too; whether it had begun to run does not matter."""
    flights: SingleFlight[str, str] = SingleFlight()
    running, released, fresh = Work(), Work(), Work()
    waiting = [
        asyncio.create_task(flights.join("running", running)),
        asyncio.create_task(flights.join("key", released)),
    ]
    await turn()
    flights.release("key")
    waiting.append(asyncio.create_task(flights.join("fresh", fresh)))
    await asyncio.sleep(0)
    assert "fresh" in flights
    await flights.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert running.was_cancelled
    assert released.was_cancelled
    assert fresh.num_begun == 0, "cancelled before its first step"
    assert list(flights) == []


@in_loop
async def test_settling_waits_for_all_and_cancels_nothing() -> None:
    """Whoever waits for the end may go away too, without ending anything."""
    flights: SingleFlight[str, str] = SingleFlight()
    work, failing = Work(), Work()
    waiting = [asyncio.create_task(flights.join("key", work)), asyncio.create_task(flights.join("other", failing))]
    await turn()
    impatient, settling = (asyncio.create_task(flights.settle()) for _ in range(2))
    await turn()
    impatient.cancel()
    await turn()
    assert (impatient.cancelled(), settling.done()) == (True, False)
    failing.end(ValueError("broken"))
    await turn()
    assert not settling.done()
    work.end("done")
    await settling
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert list(map(str, outcomes)) == ["done", "broken"]
    await flights.settle()  # at once


def test_the_end_of_the_event_loop_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """Work that is under way when the loop ends is cancelled with it, quietly."""
    flights: SingleFlight[str, str] = SingleFlight()
    works = []

    async def main() -> None:
        works.append(Work())
        asyncio.get_running_loop().create_task(flights.join("key", works[0]))
        await turn()
        assert "key" in flights

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
        gc.collect()
    assert works[0].was_cancelled
    assert list(flights) == []
    assert caplog.records == []
