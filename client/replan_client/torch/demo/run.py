"""The demonstration from beginning to end; tells what happens to whoever watches."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replan_client.client import Client
from replan_client.torch.demo.child import Returned
from replan_client.torch.demo.crew import Crew, Gone, Member
from replan_client.torch.demo.errors import DemoFailedError
from replan_client.torch.demo.happenings import (
    CostsMeasured,
    EpochBegun,
    IterationDone,
    Killed,
    LetIn,
    Listener,
    ReferenceTrained,
    Resumed,
    Returning,
    ServiceStarted,
)
from replan_client.torch.demo.messages import Completed, InForward, Present, Trained
from replan_client.torch.demo.scenario import Kill, Scenario, job_document
from replan_client.torch.demo.service import Service
from replan_client.torch.demo.verdict import Verdict, judge
from replan_client.torch.limits import Limits
from replan_client.torch.timeline import Timeline
from replan_client.watching import EpochWatcher

JOB_ID = "demo-train"
_LOOK_S = 0.05
_HERE = "replan_client.torch.demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it.

    Parameters
    ----------
    verdict
        Whether parameters and losses are those of the undisturbed run.
    generations
        By worker, the generations that each process was part of, as plain values.
    timelines
        What ran when, by position, of iterations that counted.
    held_bytes
        By stage, bytes of a microbatch before I and after it, as measured.
    """

    verdict: Verdict
    generations: Mapping[str, tuple[Mapping[str, Any], ...]]
    timelines: tuple[Timeline, ...]
    held_bytes: Mapping[int, tuple[int, int]]


def run_demo(
    scenario: Scenario,
    listener: Listener,
    *,
    serve: Sequence[str],
    scratch: Path,
    logs: Path,
    limit_s: float,
    preload: Sequence[str] = (),
) -> Outcome:
    """Train with one process a worker and a real service, kill some, and compare with the undisturbed run.

    Every process is gone when this returns or raises.

    Parameters
    ----------
    scenario
        What is trained, and what befalls it.
    listener
        Told of everything as it happens, between two waits.
    serve
        The command ``replan serve``, as a list of words.
    scratch
        An empty folder for the service's store, removed by the caller.
    logs
        Folder for what workers and service log.
    limit_s
        Seconds after which it is given up.
    preload
        Further modules that worker processes import: what the present process's main script imports.

    Raises
    ------
    DemoFailedError
        If a process fails that was not to be killed, or time is up.
    ClientError
        If the service refuses something.
    """
    with (
        Service(serve, scratch, log=logs / "service.log") as service,
        Crew(limit_s=limit_s, log=logs / "workers.log", scratch=scratch, preload=preload) as crew,
    ):
        store = crew.start("store", f"{_HERE}.store:host_store", JOB_ID, _returning(scenario))
        port = crew.wait_for(store)
        stages = _result(crew, crew.start("costs", f"{_HERE}.costs:measure_costs", scenario))
        document = job_document(scenario, stages)
        listener(CostsMeasured(document=document))
        reference = _result(crew, crew.start("reference", f"{_HERE}.reference:train_undisturbed", scenario))
        listener(ReferenceTrained(losses=tuple(_mean(losses) for losses in reference.losses)))
        url = service.wait_for_url(crew.seconds_left)
        listener(ServiceStarted(url=url))
        with Client(url, total_s=max(10.0, crew.seconds_left)) as client:
            client.register_job(JOB_ID, document)
            with EpochWatcher(client, JOB_ID) as watcher:
                run = _Run(scenario, listener, crew, client, watcher, store, reference, (url, JOB_ID, port))
                trained, completed = run.train()
    held = {v: (int(stage["activation_bytes"]), int(stage["weight_grad_bytes"])) for v, stage in enumerate(stages)}
    return Outcome(
        verdict=judge(reference, [one for _, one in trained], completed, tolerance=scenario.tolerance),
        generations={name: one.generations for name, one in trained},
        timelines=_timelines(completed),
        held_bytes=held,
    )


class _Run:
    """The training itself: hears the workers and does to them what the scenario says."""

    def __init__(
        self,
        scenario: Scenario,
        listener: Listener,
        crew: Crew,
        client: Client,
        watcher: EpochWatcher,
        store: Member,
        reference: Trained,
        where: tuple[str, str, int],
    ) -> None:
        self._scenario = scenario
        self._tell = listener
        self._crew = crew
        self._client = client
        self._watcher = watcher
        self._store = store
        self._reference = reference
        self._where = where
        self._workers: dict[str, Member] = {}
        self._trained: list[tuple[str, Trained]] = []
        self._completed: list[Completed] = []
        self._losses: dict[int, dict[tuple[int, int], float]] = {}
        self._last_epoch = 0
        self._doomed: Member | None = None
        self._killed_at: float | None = None
        self._epoch_of_kill = 0
        self._returned_at: float | None = None

    def train(self) -> tuple[list[tuple[str, Trained]], list[Completed]]:
        """Train to the end; what every worker ended with, and every iteration that one completed."""
        for name in self._scenario.names:
            self._start(name, self._scenario.kill_of(name))
        while self._workers:
            heard = self._crew.next(_LOOK_S)
            newest = self._watcher.latest
            if newest is not None:
                self._see_epochs(newest.epoch)
            if heard is not None:
                self._hear(*heard)
        return self._trained, self._completed

    def _start(self, name: str, kill: Kill | None) -> None:
        url, job_id, port = self._where
        left = self._crew.seconds_left
        limits = Limits(
            heartbeat_interval_s=0.2,
            # Longer than a busy machine leaves a process alone, shorter than whoever watches likes to wait.
            heartbeat_timeout_s=3.0,
            start_timeout_s=60.0 + left,
            link_timeout_s=60.0 + left,
            join_timeout_s=60.0 + left,
            plan_timeout_s=60.0 + left,
            poll_s=0.01,
        )
        self._workers[name] = self._crew.start(
            name, f"{_HERE}.worker:train_worker", self._scenario, url, job_id, port, limits, kill
        )

    def _see_epochs(self, number: int) -> None:
        """Tell of all epochs up to one."""
        while self._last_epoch < number:
            self._last_epoch += 1
            self._tell(EpochBegun(job_id=JOB_ID, epoch=self._client.epoch(JOB_ID, self._last_epoch)))
            if self._returned_at is not None:
                self._store.tell(self._last_epoch)

    def _hear(self, member: Member, said: object) -> None:
        if isinstance(said, Completed):
            self._see_epochs(said.epoch)
            self._note(said)
        elif isinstance(said, InForward):
            self._doomed = member
        elif isinstance(said, Present):
            self._let_in(said)
        elif isinstance(said, Returned):
            del self._workers[member.name]
            self._trained.append((member.name, said.value))
        elif isinstance(said, Gone):
            raise DemoFailedError(f"the process {member.name} ended with exit code {said.exit_code}")
        if self._doomed is not None:
            self._kill(self._doomed)

    def _note(self, report: Completed) -> None:
        """An iteration that a worker has completed."""
        if self._killed_at is not None and report.epoch > self._epoch_of_kill:
            seconds = time.monotonic() - self._killed_at
            self._killed_at = None
            self._tell(Resumed(epoch=report.epoch, iteration=report.iteration, seconds=seconds))
        self._completed.append(report)
        found = self._losses.setdefault(report.iteration, {})
        was_whole = len(found) == self._scenario.batch
        found |= report.losses
        if len(found) == self._scenario.batch and not was_whole:
            self._tell(
                IterationDone(
                    iteration=report.iteration,
                    epoch=report.epoch,
                    loss=_mean(found),
                    reference_loss=_mean(self._reference.losses[report.iteration]),
                )
            )
        comes_back = self._scenario.comes_back
        if comes_back is not None and report.iteration == comes_back.iteration and self._returned_at is None:
            self._returned_at = time.monotonic()
            self._tell(Returning(comes_back=comes_back))
            self._start(comes_back.worker, None)

    def _kill(self, member: Member) -> None:
        """Kill a worker that waits for it, once all that was done before has been told."""
        kill = self._scenario.kill_of(member.name)
        assert kill is not None and member.process.pid is not None
        if len(self._losses.get(kill.iteration - 1, ())) < self._scenario.batch:
            return
        self._doomed = None
        self._epoch_of_kill, self._killed_at = self._last_epoch, time.monotonic()
        os.kill(member.process.pid, signal.SIGKILL)
        member.process.join(self._crew.seconds_left)
        member.is_over = True
        del self._workers[member.name]
        self._tell(Killed(kill=kill, pid=member.process.pid))

    def _let_in(self, present: Present) -> None:
        """All that wait for whoever came back may go on."""
        assert self._returned_at is not None
        self._tell(LetIn(worker=present.worker, seconds=time.monotonic() - self._returned_at))
        for member in self._workers.values():
            member.tell("go")


def _returning(scenario: Scenario) -> str:
    return "" if scenario.comes_back is None else scenario.comes_back.worker


def _result(crew: Crew, member: Member) -> Any:
    said = crew.wait_for(member)
    assert isinstance(said, Returned), f"{member.name} said {said!r}"
    return said.value


def _mean(losses: Mapping[tuple[int, int], float]) -> float:
    # In one order, so that equal losses have equal means.
    return sum(losses[microbatch] for microbatch in sorted(losses)) / len(losses)


def _timelines(completed: Sequence[Completed]) -> tuple[Timeline, ...]:
    """What ran at each position in iterations that counted: of one that was run again, only the last time."""
    last: dict[int, int] = {}
    for report in completed:
        last[report.iteration] = max(report.epoch, last.get(report.iteration, 0))
    kept = {
        (report.position, report.iteration): report for report in completed if report.epoch == last[report.iteration]
    }
    positions = sorted({position for position, _ in kept})
    return tuple(
        Timeline(
            worker=position,
            events=tuple(
                event for (where, _), report in sorted(kept.items()) if where == position for event in report.events
            ),
        )
        for position in positions
    )
