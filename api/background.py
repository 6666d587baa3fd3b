"""Tasks that a server is to run for as long as it lives, whatever goes wrong in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from api.observability.telemetry import Telemetry
from planner.errors import ReplanError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_LOG = logging.getLogger("replan.api")


class Background:
    """Tasks that begin again after an error that nobody foresaw; each is logged with its traceback and counted.

    What is foreseen, such as a store that does not answer, is the matter of the task itself. All methods belong to the event
    loop's thread.

    Parameters
    ----------
    telemetry
        Where errors are counted.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: set[str] = set()

    def run(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run ``work`` until it returns; the task is the caller's to cancel.

        Parameters
        ----------
        name
            What the task is called in the log and at ``/readyz``.
        work
            Called anew after each error, 1 s later, and up to 30 s where it goes on failing.
        """
        task = asyncio.create_task(self._keep(name, work), name=name)
        self._tasks[name] = task
        return task

    @property
    def stopped(self) -> tuple[str, ...]:
        """Names of the tasks that are not at work: they failed and are to begin again, or they were ended."""
        ended = {name for name, task in self._tasks.items() if task.done() and _went_wrong(task)}
        return tuple(sorted(ended | self._waiting))

    async def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        wait_s = _FIRST_WAIT_S
        while True:
            began = loop.time()
            try:
                await work()
            except Exception as error:
                if loop.time() - began > _LONGEST_WAIT_S:
                    wait_s = _FIRST_WAIT_S
                trace = None if isinstance(error, ReplanError) else error
                text = "the task %s of this server failed; it begins again in %g s: %s"
                _LOG.error(text, name, wait_s, error, exc_info=trace)
                self._telemetry.degraded("background_task_failed")
            else:
                return
            self._waiting.add(name)
            try:
                await asyncio.sleep(wait_s)
            finally:
                self._waiting.discard(name)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _went_wrong(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is not None
