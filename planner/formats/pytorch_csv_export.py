"""Writing a schedule as PyTorch's schedule files, one for each pipeline that runs anything.

Such a file holds one pipeline, whose rank ``r`` runs every microbatch of its stages. A microbatch that several pipelines run, as
rerouting has it, cannot be told in it. What can be: schedules without failures, and those in which whole pipelines stand still
and the others run their microbatches from the first stage to the last.

Microbatches are numbered in the order of the last stage's forwards, since PyTorch finds a microbatch's loss by its place in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.errors import NotExpressibleError
from planner.operation import Kind, Worker
from planner.problem import Problem
from planner.schedule import IntColumn, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """A schedule file of one pipeline.

    Parameters
    ----------
    pipeline
        The pipeline.
    text
        Its rows, one for each slot, ending in a newline.
    microbatches
        Home pipeline and number of each microbatch that it runs, by the number that the file gives it.
    """

    pipeline: int
    text: str
    microbatches: tuple[tuple[int, int], ...]

    @property
    def is_renumbered(self) -> bool:
        """Whether the file's numbers are not those of its pipeline's own microbatches."""
        return self.microbatches != tuple((self.pipeline, j) for j in range(len(self.microbatches)))


def export_pytorch_csv(problem: Problem, schedule: Schedule) -> tuple[PipelineFile, ...]:
    r"""Files of the pipelines that run anything, ascending.

    Parameters
    ----------
    problem
        The instance.
    schedule
        A schedule that keeps its constraints. Only its order is written.

    Raises
    ------
    NotExpressibleError
        If several pipelines run a microbatch; the first such is named.

    Examples
    --------
    >>> from planner.problem import Slot, Stage
    >>> from planner.schedule import parse_schedule
    >>> stage = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    >>> two = Problem(stages=(stage, stage), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(1,))
    >>> export_pytorch_csv(two, parse_schedule("0/0: 0F0.0 0B0.0\n0/1: 1F0.0 1B0.0", 1, 2))[0].text
    '0F0,0B0\n1F0,1B0\n'
    """
    first_ids = np.concatenate([[0], np.cumsum(problem.microbatches)])
    microbatch = first_ids[schedule.pipeline] + schedule.microbatch
    runs_it = schedule.worker_of_row() // problem.num_slots
    host = np.zeros(problem.num_microbatches, dtype=np.int64)
    host[microbatch] = runs_it
    divided = np.unique(microbatch[host[microbatch] != runs_it])
    if len(divided):
        raise _divided(problem, schedule, microbatch, divided)
    last = np.flatnonzero((schedule.kind == Kind.F) & (schedule.stage == problem.num_stages - 1))
    number = np.zeros(problem.num_microbatches, dtype=np.int64)
    files = []
    for k in np.unique(runs_it).tolist():
        # Rows of one worker stand in its order, and one worker runs all that a pipeline has of the last stage.
        rows = last[runs_it[last] == k]
        number[microbatch[rows]] = np.arange(len(rows))
        homes = zip(schedule.pipeline[rows].tolist(), schedule.microbatch[rows].tolist(), strict=True)
        files.append(PipelineFile(pipeline=k, text=_text(schedule, k, number[microbatch]), microbatches=tuple(homes)))
    return tuple(files)


def _text(schedule: Schedule, pipeline: int, number: IntColumn) -> str:
    letters = [kind.name for kind in Kind]
    lines = []
    for slot in range(schedule.num_slots):
        rows = schedule.rows(Worker(pipeline, slot))
        span = slice(rows.start, rows.stop)
        columns = (schedule.stage[span].tolist(), schedule.kind[span].tolist(), number[span].tolist())
        lines.append(",".join(f"{stage}{letters[kind]}{j}" for stage, kind, j in zip(*columns, strict=True)))
    return "".join(f"{line}\n" for line in lines)


def _divided(problem: Problem, schedule: Schedule, microbatch: IntColumn, divided: IntColumn) -> NotExpressibleError:
    """Error for microbatches that several pipelines run."""
    owner_of_row = schedule.pipeline * problem.num_slots + np.array(problem.slot_of_stage)[schedule.stage]
    dead = [worker.pipeline * problem.num_slots + worker.slot for worker in problem.dead]
    # A microbatch of a worker that is down tells most.
    telling = divided[np.isin(divided, microbatch[np.isin(owner_of_row, dead)])]
    rows = np.flatnonzero(microbatch == (telling if len(telling) else divided)[0])
    home, j = int(schedule.pipeline[rows[0]]), int(schedule.microbatch[rows[0]])
    workers = schedule.worker_of_row()[rows].tolist()
    worker_of_stage = {
        v: schedule.worker_at(index) for v, index in zip(schedule.stage[rows].tolist(), workers, strict=True)
    }
    away = [v for v in sorted(worker_of_stage) if worker_of_stage[v].pipeline != home]
    stage = next((v for v in away if Worker(home, problem.slot_of_stage[v]) in problem.dead), away[0])
    other = next(v for v in sorted(worker_of_stage) if worker_of_stage[v].pipeline != worker_of_stage[stage].pipeline)
    owner = Worker(home, problem.slot_of_stage[stage])
    state = "which is down" if owner in problem.dead else "to even the load"
    whose = "1 microbatch is" if len(divided) == 1 else f"{len(divided)} microbatches are"
    return NotExpressibleError(
        f"microbatch {home}.{j} is rerouted: worker {worker_of_stage[stage]} runs its stage {stage} for {owner}, {state}, and "
        f"worker {worker_of_stage[other]} its stage {other}; {whose} divided among pipelines. "
        "A PyTorch schedule file holds one pipeline, whose rank r runs every microbatch of its stages",
        hint=_advice(problem),
    )


def _advice(problem: Problem) -> str:
    stopped = {worker.pipeline for worker in problem.dead}
    left = problem.num_pipelines - len(stopped)
    instead = "give the workers their programs instead (replan program)"
    if not stopped or not left:
        return instead
    least, more = divmod(problem.num_microbatches, left)
    each = f"{least} microbatches each" if not more else f"{least} or {least + 1} microbatches each"
    return (
        f"{instead}, or go on without the pipelines that have a failure: plan a job of the other {left} with {each}, "
        f"{problem.num_microbatches} in all"
    )
