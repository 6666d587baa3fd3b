"""The life of one worker: form a generation, train in it until it ends, and again, until nothing is left to train."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import torch

from replan_client.client import Client
from replan_client.errors import ClientError, NoPlanError, NotFailedError, StageLostError
from replan_client.jobs import Event
from replan_client.program import GlobalBarrier
from replan_client.torch.assignments import PASSING_ERRORS, Assignment, AssignmentFeed
from replan_client.torch.errors import LinkBrokenError
from replan_client.torch.failure import WorkerFailure, is_of_the_code
from replan_client.torch.formation import Formation, Formed
from replan_client.torch.limits import Limits
from replan_client.torch.links import Links
from replan_client.torch.module_compute import ModuleCompute
from replan_client.torch.rendezvous import Generation, Rendezvous, Switch
from replan_client.torch.reporting import Reporter
from replan_client.torch.runner import Runner
from replan_client.torch.shapes import agree_on_specs
from replan_client.torch.spec import spec_of
from replan_client.torch.state import TrainingState
from replan_client.torch.training import Training
from replan_client.torch.training_errors import ExcludedError, PeerFailedError, RendezvousError, TrainedCodeError
from replan_client.torch.training_result import GenerationRecord, IterationReport, TrainingResult

_LOG = logging.getLogger("replan_client")
_AFTER_FAILURE = "mend what failed, then start anew from a checkpoint, with an empty store"
_MOST_ATTEMPTS = 20
"""Attempts at one epoch without an iteration completed, after which something else than failures is wrong."""


class TrainingLoop:
    """Trains as one worker; see :class:`replan_client.torch.trainer.Trainer`, which makes the parts."""

    def __init__(
        self,
        *,
        client: Client,
        job_id: str,
        name: str,
        training: Training,
        formation: Formation,
        rendezvous: Rendezvous,
        feed: AssignmentFeed,
        reporter: Reporter,
        limits: Limits,
        rejoin: bool,
        device: torch.device,
    ) -> None:
        self._client = client
        self._job_id = job_id
        self._name = name
        self._training = training
        self._formation = formation
        self._rendezvous = rendezvous
        self._feed = feed
        self._reporter = reporter
        self._limits = limits
        self._rejoin = rejoin
        self._device = device
        self._states: dict[tuple[int, ...], TrainingState] = {}
        self._computes: dict[tuple[int, ...], ModuleCompute] = {}
        self._version: int | None = None
        self._has_trained = False
        self._kept_before: int | None = None
        self._attempted: tuple[int, int | None] | None = None
        self._num_attempts = 0
        self._links: Links | None = None
        self._generation: Generation | None = None
        self._iteration: int | None = None
        self._losses: dict[int, Mapping[tuple[int, int], float]] = {}
        self._records: list[GenerationRecord] = []

    def run(self) -> TrainingResult:
        """Train to the end; raises as :meth:`replan_client.torch.trainer.Trainer.train` does."""
        try:
            self._run()
        except Exception as error:
            if not is_of_the_code(error):
                raise
            failure = WorkerFailure.of(self._name, self._iteration, error)
            self._tell(failure)
            if isinstance(error, ClientError):
                raise
            raise TrainedCodeError(
                f"{failure}; it ended training of job {self._job_id!r} for all its workers", hint=_AFTER_FAILURE
            ) from error
        return self._result()

    def _run(self) -> None:
        at_least = 1
        while not self._rendezvous.is_finished():
            began = time.monotonic()
            assignment = self._next_assignment(at_least)
            self._count_attempt(assignment)
            state = self._state_for(assignment)
            before = state.live
            formed = self._formation.form(assignment, self._states, self._version)
            at_least = assignment.number
            if formed is not None:
                self._begin(formed, state, before, began)
                at_least = self._train_in(formed, state)
        self._require_good_end()

    def close(self) -> None:
        """Close the connections."""
        if self._links is not None:
            self._links.close()
            self._links = None

    def _tell(self, failure: WorkerFailure) -> None:
        """Have all others end too. Whoever waits for this worker finds training over before it could report it as dead."""
        _LOG.error("job %s: %s; training ends for all workers", self._job_id, failure)
        try:
            self._rendezvous.mark_finished(failure)
            if self._generation is not None:
                self._rendezvous.break_up(self._generation)
        except torch.distributed.DistError as error:
            # They cannot go on without the store either.
            _LOG.error("job %s: the others cannot be told, the store does not answer: %s", self._job_id, error)

    def _require_good_end(self) -> None:
        """Training has ended: for a worker's failure, or without this worker, which came too late or to another job's store."""
        ending, expected = self._rendezvous.ending(), self._training.num_iterations
        if isinstance(ending, WorkerFailure):
            raise PeerFailedError(f"training of job {self._job_id!r} ended: {ending}", hint=_AFTER_FAILURE)
        if self._records:
            return
        if ending != expected:
            raise RendezvousError(
                f"the store says that training of job {self._job_id!r} ended after {ending} iterations; expected {expected}",
                hint="start anew from a checkpoint, with an empty store",
            )
        _LOG.warning("job %s: training had ended before %s joined; nothing is left to do", self._job_id, self._name)

    # What to run

    def _count_attempt(self, assignment: Assignment) -> None:
        """Give up where one epoch is tried again and again and nothing comes of it: that is no failure of workers."""
        what = (assignment.number, self._version)
        self._num_attempts = self._num_attempts + 1 if what == self._attempted else 1
        self._attempted = what
        if self._num_attempts > _MOST_ATTEMPTS:
            raise RendezvousError(
                f"{_MOST_ATTEMPTS} attempts at epoch {assignment.number} completed no iteration",
                hint="see in the log why the workers do not stay connected",
            )

    def _next_assignment(self, at_least: int) -> Assignment:
        """The newest epoch that can be run, with at least this number.

        Raises
        ------
        ExcludedError
            If this worker is down in it and is not to come back.
        StageLostError, NoPlanError
            If what is lost does not come back, or no plan comes in time.
        """
        until = time.monotonic() + self._limits.plan_timeout_s
        seen: Assignment | None = None
        while True:
            newest = self._feed.wait_newer(at_least - 1, until - time.monotonic())
            if newest is None:
                raise self._no_plan(seen)
            seen, at_least = newest, newest.number + 1
            if newest.lost is not None:
                raise StageLostError(
                    f"epoch {newest.number} of job {self._job_id!r}: {newest.lost.message}", hint=newest.lost.hint
                )
            if not newest.epoch.is_live(self._name):
                self._come_back(newest, until)
            elif newest.program is not None:
                return newest

    def _no_plan(self, seen: Assignment | None) -> Exception:
        if seen is None or seen.epoch.problem is None:
            return RendezvousError(
                f"no epoch of job {self._job_id!r} came within {self._limits.plan_timeout_s:g} s",
                hint="see that the service runs and the job is registered",
            )
        problem = seen.epoch.problem
        message = f"epoch {seen.number} of job {self._job_id!r} has no plan: {problem.message}"
        return NoPlanError(message, hint=problem.hint, code=problem.code)

    def _come_back(self, newest: Assignment, until: float) -> None:
        """Report this worker as recovered, without the state it had: others went on without it."""
        self._states.clear()
        self._computes.clear()
        self._version = None
        self._has_trained = True
        refusal = None
        while self._rejoin:
            try:
                self._client.report(self._job_id, Event(kind="node_recovered", workers=(self._name,)))
            except NotFailedError as error:
                current = self._client.current_epoch(self._job_id)
                if current is not None and current.is_live(self._name):
                    return
                refusal = error.message
                break
            except PASSING_ERRORS:
                if time.monotonic() > until:
                    raise
                continue
            return
        raise ExcludedError(
            f"worker {self._name} is down in epoch {newest.number} of job {self._job_id!r}"
            + ("" if refusal is None else f", and cannot come back: {refusal}"),
            hint="report what failed as recovered, then start it again; or let it re-join by itself",
        )

    def _state_for(self, assignment: Assignment) -> TrainingState:
        """State of the stages that this worker runs in an epoch; others that it holds are kept until all have come together."""
        stages = assignment.stages
        if stages not in self._states:
            modules = {stage: self._training.build_stage(stage).to(self._device) for stage in stages}
            optimizers = {stage: self._training.make_optimizer(module) for stage, module in modules.items()}
            is_new = not self._has_trained and not self._rendezvous.has_begun()
            if is_new and self._training.restore is not None:
                for stage in stages:
                    self._training.restore(stage, modules[stage], optimizers[stage])
            self._states[stages] = TrainingState(
                modules,
                optimizers,
                version=self._training.first_iteration if is_new else None,
                is_initial=is_new,
            )
            if is_new:
                self._version = self._training.first_iteration
        return self._states[stages]

    def _begin(self, formed: Formed, state: TrainingState, before: int | None, began: float) -> None:
        """Take a formed generation in the place of the one before, which all have left by now: nothing in it is still read."""
        self.close()
        self._links = formed.links
        self._generation = formed.generation
        self._kept_before = None
        self._has_trained = True
        self._version = version = formed.decision.version
        self._states = {state.stages: state}
        self._computes = {stages: compute for stages, compute in self._computes.items() if stages == state.stages}
        for iteration in [iteration for iteration in self._losses if iteration >= version]:
            del self._losses[iteration]
        donors = {copy.receiver: copy.donor for copy in formed.decision.copies}
        self._records.append(
            GenerationRecord(
                epoch=formed.generation.epoch,
                attempt=formed.generation.attempt,
                position=formed.links.me,
                first_iteration=version,
                num_workers=len(formed.members),
                rolled_back=before is not None and before > version,
                received_from=donors.get(formed.links.me),
                received_bytes=formed.received_bytes,
                forming_s=time.monotonic() - began,
            )
        )
        _LOG.info("job %s: %s runs %s from iteration %d", self._job_id, self._name, formed.generation, version)
        self._reporter.acknowledge(formed.generation.epoch, version)

    # Iterations

    def _train_in(self, formed: Formed, state: TrainingState) -> int:
        """Train until the generation ends; returns the epoch to go on with, or a newer one, unless training is over."""
        try:
            compute = self._compute_for(formed, state)
            runner = Runner(formed.links, compute, before_step=lambda i, stage: self._before_step(state, i, stage))
            while (iteration := state.live) is not None and iteration < self._training.num_iterations:
                switch = self._look_around(formed, iteration)
                if switch is not None:
                    return switch.epoch
                self._run_iteration(formed, state, runner, iteration)
        except LinkBrokenError as error:
            _LOG.warning("job %s: %s leaves %s: %s", self._job_id, self._name, formed.generation, error)
            return self._leave_broken(formed)
        return self._end(formed)

    def _run_iteration(self, formed: Formed, state: TrainingState, runner: Runner, iteration: int) -> None:
        program = formed.assignment.program
        assert program is not None, "only epochs with a program are formed"
        began = time.monotonic()
        self._iteration = iteration
        result = runner.run_iteration(iteration, program)
        state.complete()
        self._version = state.live
        self._losses[iteration] = result.losses
        if self._training.on_iteration is not None:
            self._training.on_iteration(
                IterationReport(
                    iteration=iteration,
                    epoch=formed.generation.epoch,
                    position=formed.links.me,
                    losses=result.losses,
                    seconds=time.monotonic() - began,
                    peak_in_flight=result.peak_in_flight,
                    events=result.events,
                    modules=state.modules,
                    optimizers=state.optimizers,
                )
            )
        if formed.has_idle_peer and not any(isinstance(i, GlobalBarrier) for i in program.instructions):
            # Nobody waits for a worker that computes nothing. Without this it could fall two iterations behind.
            formed.links.all_reduce([torch.ones(1, device=self._device)])

    def _before_step(self, state: TrainingState, iteration: int, stage: int) -> None:
        if self._kept_before != iteration:
            state.keep()
            self._kept_before = iteration
        if self._training.learning_rate is not None:
            rate = self._training.learning_rate(iteration)
            for group in state.optimizers[stage].param_groups:
                group["lr"] = rate

    def _compute_for(self, formed: Formed, state: TrainingState) -> ModuleCompute:
        compute = self._computes.get(state.stages)
        if compute is None:
            num_stages = 1 + max(stage for member in formed.members for stage in member.stages)
            specs = agree_on_specs(
                self._rendezvous.shapes_store(formed.assignment.epoch.revision),
                state.modules,
                spec_of(self._training.data(self._training.first_iteration, 0, 0)[0]),
                num_stages=num_stages,
                device=self._device,
                timeout_s=self._limits.link_timeout_s,
            )
            compute = ModuleCompute(
                state.modules,
                state.optimizers,
                specs,
                num_stages=num_stages,
                data=self._training.data,
                loss_fn=self._training.loss_fn,
                seed=self._training.seed,
                device=self._device,
            )
            self._computes[state.stages] = compute
        return compute

    # Boundaries

    def _look_around(self, formed: Formed, iteration: int) -> Switch | None:
        """Before each iteration: whether to leave here, and for which epoch.

        Who has work proposes that all leave before the *next* iteration. Nobody can have come past that: to complete this
        iteration takes the proposer's share of it, which it begins only after it has proposed.
        """
        generation = formed.generation
        switch = self._rendezvous.switch(generation)
        if switch is None:
            newest = self._feed.latest
            if newest is not None and formed.assignment.is_loaded and self._is_worth_leaving(formed, newest):
                self._rendezvous.propose(generation, Switch(iteration=iteration + 1, epoch=newest.number))
        elif iteration >= switch.iteration:
            self._rendezvous.publish(generation, "left")
            self._linger(formed, switch.epoch)
            return switch
        if self._rendezvous.is_over(generation):
            raise LinkBrokenError(f"generation {generation} is over")
        return None

    def _is_worth_leaving(self, formed: Formed, newest: Assignment) -> bool:
        """Whether a newer epoch can be begun, or ends training: all who would be new in it are there already."""
        if newest.number <= formed.generation.epoch:
            return False
        if newest.lost is not None:
            return True
        if newest.epoch.plan is None:
            return False
        new = [name for name in newest.names if name not in formed.assignment.names]
        return not self._rendezvous.missing(self._rendezvous.present(newest.number), "member", new)

    def _linger(self, formed: Formed, epoch: int) -> None:
        """Keep connections that others may still read from, where this worker is not part of what follows and will close them."""
        newest = self._feed.latest
        if newest is None or newest.number < epoch or newest.program is not None:
            return
        until = time.monotonic() + self._limits.heartbeat_timeout_s
        while self._rendezvous.missing(formed.generation, "left", formed.assignment.names):
            if self._rendezvous.is_over(formed.generation) or time.monotonic() > until:
                return
            time.sleep(self._limits.poll_s)

    def _leave_broken(self, formed: Formed) -> int:
        self._rendezvous.break_up(formed.generation)
        self.close()
        return formed.generation.epoch

    def _end(self, formed: Formed) -> int:
        """Wait until all have completed the last iteration: until then somebody may have to go back for it."""
        self._rendezvous.publish(formed.generation, "end")
        names = formed.assignment.names
        if self._formation.gather(formed.generation, "end", names, self._version, is_end=True):
            self._rendezvous.mark_finished(self._training.num_iterations)
            return formed.generation.epoch
        return self._leave_broken(formed)

    def _result(self) -> TrainingResult:
        states = [state for state in self._states.values() if state.live == self._training.num_iterations]
        modules = states[0].modules if states else {}
        return TrainingResult(
            worker=self._name,
            completed=states[0].live if states else None,
            modules=modules,
            optimizers=states[0].optimizers if states else {},
            losses=dict(self._losses),
            generations=tuple(self._records),
        )
