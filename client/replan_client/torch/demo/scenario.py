"""What the demonstration trains, and what happens to the workers meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from replan_client.errors import ArgumentError

Precision: TypeAlias = Literal["float64", "float32"]
TOLERANCES: Mapping[Precision, float] = {"float64": 1e-12, "float32": 1e-5}
"""Largest difference that the order of sums may make, relative to the largest element of a parameter."""

_TRANSFER_US = 200.0
_ALL_REDUCE_US = 300.0
_HOUR_S = 3600.0
_LEAST_ITERATIONS = 10
_LEAST_QUICK_ITERATIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A worker that gets SIGKILL in the middle of an iteration: during its ``forward``-th F there, counted from 1."""

    worker: str
    iteration: int
    forward: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """A killed worker that is started again once all have completed an iteration."""

    worker: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A job and what befalls it.

    Parameters
    ----------
    num_pipelines, num_slots, num_microbatches, num_iterations
        The job's; a slot holds one stage.
    kills
        In the order of their iterations, each above 0.
    comes_back
        Who comes back; ``None`` for nobody.
    precision
        Of parameters and activations.
    seed
        Of parameters, texts and dropout.
    reference_seed
        Of the dropout of the undisturbed run; another one than ``seed`` gives a run that has to be found different.
    """

    num_pipelines: int
    num_slots: int
    num_microbatches: int
    num_iterations: int
    kills: tuple[Kill, ...]
    comes_back: Return | None
    precision: Precision
    seed: int
    reference_seed: int

    @property
    def names(self) -> tuple[str, ...]:
        """All workers by their homes."""
        return tuple(f"{k}/{s}" for k in range(self.num_pipelines) for s in range(self.num_slots))

    @property
    def batch(self) -> int:
        """Microbatches of an iteration."""
        return self.num_pipelines * self.num_microbatches

    @property
    def tolerance(self) -> float:
        """Largest relative difference that counts as equal."""
        return TOLERANCES[self.precision]

    def kill_of(self, worker: str) -> Kill | None:
        """The kill that a worker is to get."""
        return next((kill for kill in self.kills if kill.worker == worker), None)


def full_scenario(
    *, num_iterations: int = 16, precision: Precision = "float64", seed: int = 0, reference_seed: int | None = None
) -> Scenario:
    """Three pipelines of four slots. Two workers of one slot die, so that somebody moves there; the first comes back.

    Raises
    ------
    ArgumentError
        If all that does not fit into the iterations.
    """
    _require(num_iterations, _LEAST_ITERATIONS)
    return Scenario(
        num_pipelines=3,
        num_slots=4,
        num_microbatches=6,
        num_iterations=num_iterations,
        kills=(
            Kill(worker="1/2", iteration=num_iterations // 5, forward=4),
            Kill(worker="2/2", iteration=2 * num_iterations // 5, forward=3),
        ),
        comes_back=Return(worker="1/2", iteration=3 * num_iterations // 5),
        precision=precision,
        seed=seed,
        reference_seed=seed if reference_seed is None else reference_seed,
    )


def quick_scenario(
    *, num_iterations: int = 6, precision: Precision = "float64", seed: int = 0, reference_seed: int | None = None
) -> Scenario:
    """Two pipelines of two slots and one kill.

    Raises
    ------
    ArgumentError
        If that does not fit into the iterations.
    """
    _require(num_iterations, _LEAST_QUICK_ITERATIONS)
    return Scenario(
        num_pipelines=2,
        num_slots=2,
        num_microbatches=3,
        num_iterations=num_iterations,
        kills=(Kill(worker="1/1", iteration=num_iterations // 2, forward=2),),
        comes_back=None,
        precision=precision,
        seed=seed,
        reference_seed=seed if reference_seed is None else reference_seed,
    )


def job_document(scenario: Scenario, stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The job, as a job file has it.

    Parameters
    ----------
    scenario
        What is trained.
    stages
        Measured costs of each stage. Links were not measured: they are said to take what loopback takes.
    """
    return {
        "schema_version": 1,
        "name": "demo-train",
        "topology": {"nodes": f"n[00-{len(scenario.names) - 1:02d}]", "gpus_per_node": 1},
        "layout": {
            "pipeline_parallel": scenario.num_slots,
            "data_parallel": scenario.num_pipelines,
            "rank_order": "pp-dp",
        },
        "microbatches": scenario.num_microbatches,
        "stage_costs": {"transfer_us": _TRANSFER_US, "all_reduce_us": _ALL_REDUCE_US},
        "stages": [dict(stage) for stage in stages],
        # What migrations are weighed with: the next failure is far off, and copies are quick.
        "recovery": {
            "mean_time_between_failures_s": _HOUR_S,
            "repair_s": _HOUR_S,
            "copy_bytes_per_s": 10**9,
        },
    }


def _require(num_iterations: int, least: int) -> None:
    if num_iterations < least:
        raise ArgumentError(f"{num_iterations} iterations; expected at least {least}, so that all of it has room")
