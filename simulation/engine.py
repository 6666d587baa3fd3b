"""The engine: plays a policy through a trace and keeps the books.

Between changes training stands still or runs at a steady rate, so time is added up stretch by stretch. A change that comes
while training still stands still after the one before begins its own stalls at once; what is left of the older ones beyond
that is stood still too. An iteration that a loss breaks off counts from the last iteration's end; one that a return would
break off is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from planner.job import Job
from simulation.cluster import Change, Cluster, gpus_down, gpus_of
from simulation.constants import Costs, young_daly_s
from simulation.outcome import Cause, Interval, Outcome
from simulation.policies.policy import Answer, Lost, Mode, Policy
from simulation.trace import Trace, TraceEvent, TraceEventKind

_ROUNDING = 1e-9
"""What is left of an iteration that floating point does not tell from a finished one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What all policies are played on: a job, a trace of its nodes, what things cost, and what is best without failures.

    Parameters
    ----------
    job
        The job.
    trace
        A trace of its nodes.
    costs
        What answers cost.
    fault_free_samples_per_s
        What the whole cluster trains a second without failures.
    """

    job: Job
    trace: Trace
    costs: Costs
    fault_free_samples_per_s: float


def play(policy: Callable[[], Policy], scene: Scene) -> Outcome:
    """Play a policy through a trace.

    A policy that writes checkpoints is played twice: once to count how often it falls back to one, ``r`` times, and then with
    the Young-Daly interval for ``duration / (r + 1)`` seconds between failures that need one. So each policy has the interval
    that suits it, and is told as much of the trace as any other.

    Parameters
    ----------
    policy
        Makes the policy anew for each run.
    scene
        What it is played on.
    """
    made = policy()
    if not made.writes_checkpoints:
        return _Run(made, scene, None).outcome()
    rollbacks = _Run(made, scene, None).outcome().rollbacks
    interval_s = young_daly_s(scene.costs.checkpoint_s, scene.trace.duration_s / (rollbacks + 1))
    return _Run(policy(), scene, interval_s).outcome()


@dataclass(slots=True)
class _Books:
    """What was trained and lost so far."""

    samples: float = 0.0
    unsaved: float = 0.0
    """Samples since the last checkpoint."""
    since_checkpoint_s: float = 0.0
    """Seconds trained since the last checkpoint."""
    unfinished: float = 0.0
    """Samples of the iteration in flight."""
    lost_s: dict[Cause, float] = field(default_factory=lambda: dict.fromkeys(Cause, 0.0))
    gpu_seconds: float = 0.0
    rollbacks: int = 0
    losses: int = 0
    timeline: list[Interval] = field(default_factory=list)


class _Run:
    """One pass of one policy."""

    def __init__(self, policy: Policy, scene: Scene, interval_s: float | None) -> None:
        self._policy, self._scene, self._interval_s = policy, scene, interval_s
        self._books = _Books()
        self._now = scene.trace.start_s
        self._stalls: list[tuple[Cause, float]] = []
        """Causes and when they end."""
        self._later: tuple[float, float, Mode] | None = None
        topology = scene.job.topology
        self._targets_down = set(scene.trace.initially_down)
        self._cluster = Cluster(job=scene.job, down=gpus_down(topology, self._targets_down))
        self._mode = policy.begin(self._cluster)

    def outcome(self) -> Outcome:
        """Play the whole trace."""
        scene, policy, books = self._scene, self._policy, self._books
        for seconds, events in scene.trace.moments():
            self._advance(seconds)
            change = self._change(events)
            if change is not None:
                self._take(policy.answer(change))
        self._advance(scene.trace.end_s)
        # What was in flight at the end is no finished iteration.
        self._take_back(books.unfinished)
        return Outcome(
            policy=policy.name,
            trace=scene.trace.name,
            keeps_batch=policy.keeps_batch,
            is_exact=policy.is_exact,
            duration_s=scene.trace.duration_s,
            samples=books.samples,
            fault_free_samples_per_s=scene.fault_free_samples_per_s,
            lost_s=books.lost_s,
            gpu_hours=books.gpu_seconds / 3600,
            rollbacks=books.rollbacks,
            losses=books.losses,
            checkpoint_interval_s=self._interval_s,
            timeline=tuple(books.timeline),
        )

    def _change(self, events: tuple[TraceEvent, ...]) -> Change | None:
        """The change that the events of one moment make; ``None`` where they change nothing."""
        before, topology = self._cluster, self._scene.job.topology
        hit: set[int] = set()
        for event in events:
            if event.kind is TraceEventKind.REMOVE:
                self._targets_down.add(event.node)
                hit.update(set(gpus_of(topology, event.node)) - before.down)
            else:
                self._targets_down.discard(event.node)
        down = gpus_down(topology, self._targets_down)
        if down == before.down and not hit:
            return None
        self._cluster = before.with_down(down)
        struck = set(before.workers) - set(before.with_down(before.down | hit).workers)
        now = set(self._cluster.workers)
        self._books.losses += bool(hit)
        return Change(
            before=before,
            after=self._cluster,
            lost=tuple(sorted(struck)),
            returned=tuple(sorted((now - set(before.workers)) | (now & struck))),
            gpus_lost=len(hit),
            is_waiting=self._later is not None,
        )

    def _take(self, answer: Answer) -> None:
        """Do what the policy says."""
        books = self._books
        if answer.lost is Lost.ITERATION:
            self._take_back(books.unfinished)
        elif answer.lost is Lost.SINCE_CHECKPOINT:
            books.rollbacks += 1
            self._take_back(books.unsaved)
            books.since_checkpoint_s = 0.0
        elif answer.stalls or answer.mode != self._mode:
            # What is in flight is finished before anybody stands still.
            books.unfinished = 0.0
        self._mode, set_before = answer.mode, self._later
        self._later = None
        ends = self._now
        stalls: list[tuple[Cause, float]] = []
        for cause, seconds in answer.stalls:
            ends += seconds
            stalls.append((cause, ends))
        # Older stalls that last longer than the new ones are stood still to their end.
        self._stalls = stalls + [(cause, until) for cause, until in self._stalls if until > ends]
        if answer.later is not None:
            after_s, stall_s, mode = answer.later
            at = max([ends, *(until for _, until in self._stalls)])
            if after_s is not None:
                at += after_s
            elif set_before is not None:
                at = set_before[0]
            self._later = (at, stall_s, mode)

    def _advance(self, until: float) -> None:
        """Let time pass, through stalls and what the policy has under way."""
        while self._now < until:
            while self._stalls and self._stalls[0][1] <= self._now:
                cause, _ = self._stalls.pop(0)
                if cause is Cause.CHECKPOINT:
                    # What was stood still for is written now.
                    self._books.unsaved = self._books.since_checkpoint_s = 0.0
            if self._later is not None and self._later[0] <= self._now and not self._stalls:
                _, stall_s, self._mode = self._later
                self._later = None
                self._books.unfinished = 0.0
                self._stalls = [(Cause.RECONFIGURATION, self._now + stall_s)] if stall_s > 0 else []
                continue
            ends = [until]
            if self._stalls:
                ends.append(self._stalls[0][1])
            elif self._later is not None:
                ends.append(self._later[0])
            self._pass(min(ends))

    def _pass(self, until: float) -> None:
        """Let time pass in which nothing changes."""
        books, seconds = self._books, until - self._now
        books.gpu_seconds += seconds * self._policy.gpus(self._cluster)
        if self._stalls:
            books.lost_s[self._stalls[0][0]] += seconds
            rate = 0.0
        else:
            rate = self._train(seconds)
        books.timeline.append(Interval(start_s=self._now, end_s=until, samples_per_s=rate))
        self._now = until

    def _train(self, seconds: float) -> float:
        """Train for some time; the useful samples a second."""
        books, mode, best = self._books, self._mode, self._scene.fault_free_samples_per_s
        overheads = list(mode.overheads)
        if self._interval_s is not None and mode.samples_per_s > 0:
            cost_s = self._scene.costs.checkpoint_s
            overheads.append((Cause.CHECKPOINT, cost_s / (self._interval_s + cost_s)))
        running = 1 - sum(share for _, share in overheads)
        rate = mode.samples_per_s * running
        for cause, share in overheads:
            books.lost_s[cause] += seconds * share * mode.samples_per_s / best
        for cause, share in mode.short_of:
            books.lost_s[cause] += seconds * share * (1 - mode.samples_per_s / best)
        books.samples += rate * seconds
        if mode.samples_per_s > 0:
            one = mode.samples_per_s * mode.iteration_s
            books.unfinished = (books.unfinished + rate * seconds) % one
            if one - books.unfinished < _ROUNDING * one:
                books.unfinished = 0.0
            self._save(seconds * running, rate / running)
        return rate

    def _save(self, seconds: float, rate: float) -> None:
        """Write the checkpoints that fall due in some seconds of training."""
        books = self._books
        books.unsaved += rate * seconds
        books.since_checkpoint_s += seconds
        if self._interval_s is not None and books.since_checkpoint_s >= self._interval_s:
            books.since_checkpoint_s %= self._interval_s
            books.unsaved = rate * books.since_checkpoint_s

    def _take_back(self, samples: float) -> None:
        """Take samples that are lost off what was trained."""
        books = self._books
        books.samples -= samples
        books.unsaved = max(0.0, books.unsaved - samples)
        books.lost_s[Cause.REDONE] += samples / self._scene.fault_free_samples_per_s
        books.unfinished = 0.0
