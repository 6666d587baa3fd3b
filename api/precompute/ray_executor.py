"""An existing Ray cluster as the place where templates are made.

Every actor is one solver process: it imports and warms up the planner once and then takes one request at a time. Ray
pickles what it carries, so a cluster, and whoever may connect to it, has to be trusted; that is why nothing is read from it
but the byte strings that a solver process would answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from anyio import to_thread

from api import worker
from api.errors import ClusterError, SolveTimeoutError
from api.pool import MAX_ATTEMPTS
from planner.errors import OptionError, SolverCrashedError, SolverMissingError

_ADDRESS = re.compile(r"ray://[^\s/?#@]+:[0-9]{1,5}")
_MAX_STARTS = 3
"""How often in a row the start of a solver process may fail before its place is given up."""
_LOG = logging.getLogger("replan.api.precompute")


class SolverActor:
    """What runs on the cluster: the handlers of :mod:`api.planning`, warm."""

    def __init__(self) -> None:
        from api import planning  # noqa: PLC0415 - whoever only connects to a cluster plans nothing

        planning.warm_up()
        self._handlers = planning.HANDLERS

    def version(self) -> str:
        """Version of RePlan that is installed where the actor runs."""
        return importlib.metadata.version("replan")

    def answer(self, request: list[bytes]) -> list[bytes]:
        """Answer one request, as a solver process does."""
        name, *parts = request
        return worker.answer(self._handlers[name], parts)


class RayExecutor:
    """Solver processes on a Ray cluster; see :class:`api.precompute.executors.Executor`.

    Use :meth:`connect`, and :meth:`close` in the end. A solver process that dies, with its node or alone, is replaced, and
    what it worked on is tried once more.
    """

    def __init__(self, ray: Any, *, num_processes: int, warm_up_timeout_s: float) -> None:
        self._ray = ray
        self._actor_class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(SolverActor)
        self._num_processes = num_processes
        self._warm_up_timeout_s = warm_up_timeout_s
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        self._num_places = num_processes
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        for _ in range(num_processes):
            self._in_background(self._bring_up())

    @classmethod
    async def connect(
        cls, address: str, *, num_processes: int | None = None, warm_up_timeout_s: float = 300.0
    ) -> RayExecutor:
        """Connect to a cluster, start the solver processes and wait until the first is ready.

        Parameters
        ----------
        address
            ``ray://host:port`` of the cluster's client server, mostly port 10001. Where the cluster asks for a token, Ray
            takes it from ``RAY_AUTH_TOKEN`` or from its file.
        num_processes
            Solver processes, each taking one CPU of the cluster, at least 1; ``None`` for as many as it has free CPUs.
        warm_up_timeout_s
            Seconds a process may take to get ready.

        Raises
        ------
        OptionError
            If the address is not of this form.
        SolverMissingError
            If Ray is not installed here.
        ClusterError
            If there is no cluster, it refuses the connection, or no solver process gets ready there.
        """
        if _ADDRESS.fullmatch(address) is None:  # Ray takes others for leave to start a cluster here
            raise OptionError(f"the Ray address is {address[:80]!r}; expected ray://host:port")
        # Read when Ray is imported: else a call after the cluster was lost would start one on this machine.
        os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
        try:
            import ray  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as error:
            raise SolverMissingError("Ray is not installed", hint="pip install 'replan[ray]'") from error
        free_cpus = await to_thread.run_sync(_connect, ray, address)
        executor = cls(ray, num_processes=num_processes or max(1, free_cpus), warm_up_timeout_s=warm_up_timeout_s)
        try:
            executor._free.put_nowait(await executor._take())
        except BaseException:
            await executor.close()
            raise
        return executor

    @property
    def capacity(self) -> int:
        """Solver processes asked for; those that are not ready yet join later."""
        return self._num_processes

    async def run(self, request: Sequence[bytes], *, timeout_s: float) -> list[bytes]:
        """Have a request answered; see :class:`api.precompute.executors.Executor`."""
        for _ in range(MAX_ATTEMPTS):
            actor = await self._take()
            is_usable = False
            try:
                answer: list[bytes] = await self._call(partial(actor.answer.remote, list(request)), timeout_s)
                is_usable = True
            except TimeoutError as error:
                raise SolveTimeoutError(f"no answer after {timeout_s:g} s: the solver was killed") from error
            except (self._ray.exceptions.RayError, ConnectionError) as error:
                _LOG.warning("a solver process on the Ray cluster ended over a request: %s", _reason(error))
                continue
            finally:
                if is_usable:
                    self._free.put_nowait(actor)
                else:  # dead, or still busy with this request
                    self._in_background(self._replace(actor))
            return worker.unpack(answer)
        raise SolverCrashedError(f"solver processes on the Ray cluster ended {MAX_ATTEMPTS} times over this request")

    async def close(self) -> None:
        """Leave the cluster, which ends the solver processes there."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._lost.done():
            self._lost.exception()
        await to_thread.run_sync(_disconnect, self._ray)

    async def _take(self) -> Any:
        """Wait for a solver process that is free."""
        free = asyncio.ensure_future(self._free.get())
        try:
            await asyncio.wait({free, self._lost}, return_when=asyncio.FIRST_COMPLETED)
            if not free.done():
                self._lost.result()
            return free.result()
        except asyncio.CancelledError:
            if free.done() and not free.cancelled():
                self._free.put_nowait(free.result())
            raise
        finally:
            free.cancel()

    async def _call(self, submit: Callable[[], Any], timeout_s: float) -> Any:
        """Wait for what a call on the cluster gives."""
        reference = await to_thread.run_sync(submit)
        # Ray sets the future whatever happens to its waiter, so it must not be cancelled.
        future = asyncio.wrap_future(reference.future())
        future.add_done_callback(_forget)
        done, _ = await asyncio.wait({future}, timeout=timeout_s)
        if not done:
            raise TimeoutError
        return future.result()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _replace(self, actor: Any) -> None:
        with contextlib.suppress(Exception):  # it is gone, or the cluster is
            await to_thread.run_sync(self._ray.kill, actor)
        await self._bring_up()

    async def _bring_up(self) -> None:
        """Start one solver process and put it among the free ones; where that fails for the last place, the cluster is lost."""
        problem: ClusterError | None = None
        for _ in range(_MAX_STARTS):
            try:
                actor = await to_thread.run_sync(self._actor_class.remote)
                version = await self._call(actor.version.remote, self._warm_up_timeout_s)
            except Exception as error:  # Ray's errors for a lost cluster have no common class
                what = "is not ready in time" if isinstance(error, TimeoutError) else f"did not start: {_reason(error)}"
                problem = ClusterError(
                    f"a solver process on the Ray cluster {what}",
                    hint="check that the cluster runs, has a free CPU, and has RePlan installed on every node",
                )
                continue
            here = importlib.metadata.version("replan")
            if version == here:
                self._free.put_nowait(actor)
                return
            problem = ClusterError(
                f"the Ray cluster has RePlan {version}, this machine {here}",
                hint="install the same version of RePlan on every node of the cluster",
            )
        assert problem is not None
        _LOG.error("%s", problem)
        self._num_places -= 1
        if self._num_places == 0:
            self._lost.set_exception(problem)


def _connect(ray: Any, address: str) -> int:
    """Connect, and tell how many CPUs of the cluster are free."""
    try:
        try:
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
        except ConnectionAbortedError:  # the cluster is there, and was too busy to start what serves this client
            _disconnect(ray)
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
        return int(ray.available_resources().get("CPU", 0))
    except Exception as error:  # Ray raises whatever it likes here, from ValueError to its own errors
        _disconnect(ray)
        raise ClusterError(
            f"there is no connection to the Ray cluster {address}: {_reason(error)}",
            hint="check the address, that its port is the one of the client server, the token in RAY_AUTH_TOKEN, and that "
            "Ray and Python have the same versions there",
        ) from error


def _disconnect(ray: Any) -> None:
    with contextlib.suppress(Exception):  # there may be no connection left to end
        ray.shutdown()


def _reason(error: Exception) -> str:
    """Class of an error and the last line of its text, which for one from afar ends a whole traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:300]}" if lines else type(error).__name__


def _forget(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # seen, even where nobody waits any more
