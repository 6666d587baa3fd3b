"""Tasks of a server that go on through errors."""

from __future__ import annotations

import asyncio
import logging

import pytest

from api.background import Background
from api.observability.telemetry import Telemetry


def test_a_task_begins_again_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged with its traceback and counted, the task is told as stopped meanwhile, and then goes on."""
    telemetry = Telemetry()
    calls: list[int] = []

    async def check() -> None:
        background = Background(telemetry)
        again = asyncio.Event()

        async def work() -> None:
            calls.append(len(calls))
            if len(calls) == 1:
                raise KeyError("a bug")
            again.set()
            await asyncio.sleep(600)

        task = background.run("counting", work)
        assert background.stopped == ()
        while not background.stopped:
            await asyncio.sleep(0.01)
        assert background.stopped == ("counting",)
        await again.wait()
        assert background.stopped == ()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert background.stopped == ("counting",)

    with caplog.at_level(logging.ERROR):
        asyncio.run(check())
    assert calls == [0, 1]
    assert "KeyError" in caplog.text
    assert telemetry.registry.get_sample_value("replan_degradations_total", {"kind": "background_task_failed"}) == 1


def test_a_task_that_is_over_has_not_stopped() -> None:
    """What returns has done its work."""

    async def check() -> None:
        background = Background(Telemetry())

        async def work() -> None:
            return

        await background.run("once", work)
        assert background.stopped == ()

    asyncio.run(check())
