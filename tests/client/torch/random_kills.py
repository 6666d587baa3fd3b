"""Kills of random workers at random moments, until training ends; killed workers come back as new processes."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from replan_client.client import Client

from tests.client.torch.processes import Child, ChildFailedError, processes
from tests.client.torch.trained_jobs import LIMITS, Part, Trained, TrainedJob, largest_difference, train_worker

LOSSES = ("stage_lost", "state_lost")
"""How training may end early: nobody holds some stage any more."""


@dataclass
class Run:
    """What happened in one run.

    Parameters
    ----------
    num_kills, num_returns
        Processes killed, and started again.
    largest_difference
        From the undisturbed run; ``None`` where a state was lost.
    longest_silence_s
        Longest time in which no worker completed an iteration.
    num_rolled_back, num_copies
        Iterations given up by survivors, and states that they copied.
    """

    num_kills: int = 0
    num_returns: int = 0
    largest_difference: float | None = None
    longest_silence_s: float = 0.0
    num_rolled_back: int = 0
    num_copies: int = 0
    losses: list[str] = field(default_factory=list)


@dataclass
class _Kills:
    """Drives one run."""

    url: str
    job_id: str
    job: TrainedJob
    draw: random.Random
    limit_s: float
    most_kills: int
    run: Run = field(default_factory=Run)
    children: dict[str, Child] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    returns: list[tuple[float, str]] = field(default_factory=list)
    results: dict[str, object] = field(default_factory=dict)
    was_lost: bool = False

    def drive(self) -> Run:
        """Run to the end of training."""
        with Client(self.url) as client:
            client.register_job(self.job_id, self.job.document)
        with processes(limit_s=self.limit_s) as group:
            self.group = group
            for name in self.job.names:
                self._start(name)
            self.slots = {name: int(name.partition("/")[2]) for name in self.job.names}
            self._kill_until_the_end()
        self._judge()
        return self.run

    def _start(self, name: str) -> None:
        part = Part(pause_s=0.05, rejoins=True)
        self.children[name] = self.group.start(name, train_worker, self.url, self.job_id, self.job, part, KILL_LIMITS)

    def _kill_until_the_end(self) -> None:
        last_progress = time.monotonic()
        next_kill: float | None = None
        has_begun = False
        while not self._is_over():
            now = time.monotonic()
            for name, child in list(self.children.items()):
                while name not in self.results and child.has_said():
                    has_begun |= self._listen(name, child)
                    self.run.longest_silence_s = max(self.run.longest_silence_s, now - last_progress)
                    last_progress = now
            if not has_begun:
                last_progress = now
            elif next_kill is None:
                if not self.returns and all(name in self.slots for name in self.children):
                    next_kill = now + self.draw.expovariate(1 / 0.7)
            elif now >= next_kill and self.run.num_kills < self.most_kills:
                self._kill_one()
                # Mostly all are let in again before the next one dies, and sometimes it dies at once.
                next_kill = now + self.draw.uniform(0, 5) if self.draw.random() < 0.25 else None
            for due, name in [entry for entry in self.returns if entry[0] <= now]:
                self.returns.remove((due, name))
                self.run.num_returns += 1
                self._start(name)
            time.sleep(0.01)

    def _listen(self, name: str, child: Child) -> bool:
        """Take what a worker says; whether it has completed an iteration."""
        try:
            _, _, slot = child.next_report()
        except ChildFailedError:
            self.results[name] = child.result()
            return False
        self.slots[name] = slot
        return True

    def _kill_one(self) -> None:
        running = [name for name in self.children if name not in self.results]
        if not running:
            return
        name = self.draw.choice(running)
        self.children.pop(name).kill()
        self.run.num_kills += 1
        self.slots.pop(name, None)
        self.was_lost |= self._is_lost()
        # The last one always comes back.
        if self.draw.random() < 0.85 or not self.children:
            self.returns.append((time.monotonic() + self.draw.uniform(0, 2), name))

    def _is_lost(self) -> bool:
        """Whether a slot may have nobody left who holds its state, by where workers last trained or where they are to move."""
        with Client(self.url) as client:
            epoch = client.current_epoch(self.job_id)
        assert epoch is not None
        planned = {int(epoch.position_of(name).partition("/")[2]) for name in self.slots}
        return not set(range(self.job.num_slots)) <= set(self.slots.values()) & planned

    def _is_over(self) -> bool:
        """Whether all have ended, or one has said that a state is lost."""
        ended = [result for result in self.results.values() if not isinstance(result, Trained)]
        return bool(ended) or (not self.returns and all(name in self.results for name in self.children))

    def _judge(self) -> None:
        ended = [result for result in self.results.values() if not isinstance(result, Trained)]
        if ended:
            assert all(isinstance(result, tuple) and result[0] in LOSSES for result in ended), self.results
            # The service knows who stands where; of what processes hold, it is for the test to know.
            is_told = any(isinstance(result, tuple) and result[0] == "stage_lost" for result in ended)
            assert self.was_lost or is_told, f"a state is said to be lost, but each slot kept a worker: {ended}"
            self.run.losses = [str(result) for result in ended]
            return
        finished = [result for result in self.results.values() if isinstance(result, Trained)]
        # Whoever came back after the end holds nothing.
        holding = [result for result in finished if result.completed is not None]
        assert holding or self.was_lost, "somebody is left who holds a state"
        # One that is killed when training has ended takes what it holds with it.
        self.run.largest_difference = largest_difference(self.job, holding, has_all=False)
        records = [record for result in holding for record in result.generations]
        self.run.num_rolled_back = sum(record.rolled_back for record in records)
        self.run.num_copies = sum(record.received_from is not None for record in records)


KILL_LIMITS = type(LIMITS)(
    heartbeat_interval_s=0.2,
    heartbeat_timeout_s=2.0,
    start_timeout_s=60.0,
    link_timeout_s=20.0,
    join_timeout_s=60.0,
    plan_timeout_s=60.0,
    poll_s=0.01,
)
"""As for other tests; whoever is late is busy starting."""


def train_with_kills(url: str, job_id: str, job: TrainedJob, *, seed: int, most_kills: int, limit_s: float) -> Run:
    """Train a job while workers are killed; raises where training hangs, errs, or loses a state that somebody had.

    Parameters
    ----------
    url, job_id, job
        Where, and what.
    seed
        Of who is killed when.
    most_kills
        Kills after which it is left alone.
    limit_s
        Seconds after which it counts as hanging.
    """
    return _Kills(
        url=url, job_id=job_id, job=job, draw=random.Random(seed), limit_s=limit_s, most_kills=most_kills
    ).drive()
