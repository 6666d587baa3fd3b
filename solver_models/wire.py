"""Problems and schedules as plain JSON values: what crosses the pipe between a solve and its child process.

Nothing is pickled: whatever a damaged or hostile child writes, reading it can only fail or give numbers. Both directions
are exact: ``problem_from_wire(problem_to_wire(p)) == p``, and the same for schedules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.schedule import Schedule

_COLUMNS = ("offsets", "kind", "stage", "pipeline", "microbatch", "start_ns", "end_ns")


def problem_to_wire(problem: Problem) -> dict[str, Any]:
    """Turn a problem into JSON values."""
    return {
        "stages": [
            [
                stage.forward_ns,
                stage.input_grad_ns,
                stage.weight_grad_ns,
                stage.transfer_ns,
                stage.activation_bytes,
                stage.weight_grad_bytes,
                stage.splittable,
            ]
            for stage in problem.stages
        ],
        "slots": [[list(slot.stages), slot.sync_ns, slot.capacity_bytes] for slot in problem.slots],
        "microbatches": list(problem.microbatches),
        "optimizer": problem.optimizer.value,
        "dead": sorted([w.pipeline, w.slot] for w in problem.dead),
        "speeds_ppm": sorted([w.pipeline, w.slot, speed] for w, speed in problem.speeds_ppm.items()),
    }


def problem_from_wire(value: dict[str, Any]) -> Problem:
    """Read back what :func:`problem_to_wire` made.

    Raises
    ------
    ProblemError
        If the parts do not make a problem.
    """
    return Problem(
        stages=tuple(
            Stage(
                forward_ns=forward,
                input_grad_ns=input_grad,
                weight_grad_ns=weight_grad,
                transfer_ns=transfer,
                activation_bytes=activation,
                weight_grad_bytes=kept,
                splittable=splittable,
            )
            for forward, input_grad, weight_grad, transfer, activation, kept, splittable in value["stages"]
        ),
        slots=tuple(
            Slot(stages=tuple(stages), sync_ns=sync, capacity_bytes=capacity)
            for stages, sync, capacity in value["slots"]
        ),
        microbatches=tuple(value["microbatches"]),
        optimizer=Optimizer(value["optimizer"]),
        dead=frozenset(Worker(k, s) for k, s in value["dead"]),
        speeds_ppm={Worker(k, s): speed for k, s, speed in value["speeds_ppm"]},
    )


def schedule_to_wire(schedule: Schedule) -> dict[str, Any]:
    """Turn a schedule into JSON values, one list a column."""
    columns: dict[str, Any] = {name: getattr(schedule, name).tolist() for name in _COLUMNS}
    return columns | {"num_pipelines": schedule.num_pipelines, "num_slots": schedule.num_slots}


def schedule_from_wire(value: dict[str, Any]) -> Schedule:
    """Read back what :func:`schedule_to_wire` made.

    Raises
    ------
    ScheduleFormatError
        If the columns do not make a schedule.
    """
    columns = {name: np.array(value[name], dtype=np.int64) for name in _COLUMNS}
    return Schedule(num_pipelines=int(value["num_pipelines"]), num_slots=int(value["num_slots"]), **columns)
