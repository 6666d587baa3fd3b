"""A whole plan run with emulated compute, one process a worker, to see what its period really is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean

from torch.distributed import Store

from replan_client.errors import ProgramFormatError
from replan_client.operation import Worker
from replan_client.program import Compute, OptimizerStep, Program, program_from_dict
from replan_client.torch.emulation import EmulatedCompute, EmulatedStage
from replan_client.torch.emulation_processes import Json, run_processes
from replan_client.torch.links import Links
from replan_client.torch.profiler_errors import EmulationError
from replan_client.torch.runner import IterationResult, Runner
from replan_client.torch.timeline import Activity

MAX_ITERATIONS = 100_000
"""Most iterations of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedRun:
    """What is to be run.

    Parameters
    ----------
    stages
        Every stage of the model.
    programs
        Program of every live worker, each worker once.
    iterations
        Iterations that count, 1 to ``MAX_ITERATIONS``.
    warm_up
        Iterations of each run before them that do not, at least 0: slots that wait for each other settle in the first ones.
    runs
        How often all of that is done, 1 or more.

    Raises
    ------
    EmulationError
        If something is out of range, or a program names a stage that there is not.
    """

    stages: tuple[EmulatedStage, ...]
    programs: tuple[Program, ...]
    iterations: int = 10
    warm_up: int = 3
    runs: int = 3

    def __post_init__(self) -> None:
        for name, least in (("iterations", 1), ("warm_up", 0), ("runs", 1)):
            value = getattr(self, name)
            if not least <= value <= MAX_ITERATIONS:
                raise EmulationError(f"{name} is {value}; expected {least} to {MAX_ITERATIONS}")
        workers = [program.worker for program in self.programs]
        if not workers or len(set(workers)) < len(workers):
            raise EmulationError(f"there are programs of {sorted(map(str, workers))}; expected one of each live worker")
        for program in self.programs:
            held = held_stages(program)
            if not held or held[-1] >= len(self.stages):
                raise EmulationError(
                    f"the program of {program.worker} steps the stages {held}; expected some of 0 to {len(self.stages) - 1}"
                )
        if not any(isinstance(i, Compute) for program in self.programs for i in program.instructions):
            raise EmulationError("no program has an operation; expected at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedPeriods:
    """What was measured.

    Parameters
    ----------
    period_us
        For each run, the time from one iteration's first operation to the next one's: its mean over iterations and workers.
    slowest_us, fastest_us
        For each run, the longest and the shortest single iteration of any worker.
    """

    period_us: tuple[float, ...]
    slowest_us: tuple[float, ...]
    fastest_us: tuple[float, ...]


def held_stages(program: Program) -> tuple[int, ...]:
    """Stages that a worker holds, ascending: those that it steps."""
    return tuple(sorted(i.stage for i in program.instructions if isinstance(i, OptimizerStep)))


def run_from_document(document: Json) -> EmulatedRun:
    """Read a run's form for JSON: the fields of :class:`EmulatedRun`, stages by their fields and programs as they are served.

    Raises
    ------
    EmulationError
        If it cannot be read.
    """
    if not isinstance(document, dict):
        raise EmulationError(f"the run cannot be read: it is a {type(document).__name__}; expected its fields")
    try:
        known = {"stages", "programs", "iterations", "warm_up", "runs"}
        unknown = sorted(set(document) - known)
        if unknown:
            raise EmulationError(f"the run has the fields {unknown}; expected {sorted(known)}")
        counts = {name: document[name] for name in ("iterations", "warm_up", "runs") if name in document}
        if not all(type(value) is int for value in counts.values()):
            raise EmulationError(f"the run has {counts}; expected whole numbers")
        return EmulatedRun(
            stages=tuple(EmulatedStage(**stage) for stage in document["stages"]),
            programs=tuple(program_from_dict(program) for program in document["programs"]),
            **counts,
        )
    except ProgramFormatError as error:
        raise EmulationError(f"a program of the run cannot be read: {error.message}") from error
    except (TypeError, ValueError, KeyError) as error:
        raise EmulationError(f"the run cannot be read: {type(error).__name__} {error}") from error


def emulate(run: EmulatedRun, *, timeout_s: float) -> EmulatedPeriods:
    """Run all programs at the same time, each in a process of its own.

    Parameters
    ----------
    run
        What is run.
    timeout_s
        Seconds for all of it.

    Raises
    ------
    EmulationError
        If a worker fails or time runs out.
    """
    common = {
        "stages": [asdict(stage) for stage in run.stages],
        "workers": [[p.worker.pipeline, p.worker.slot] for p in run.programs],
        "runs": run.runs,
        "iterations": run.warm_up + run.iterations,
        "timeout_s": timeout_s,
    }
    arguments = [{**common, "program": program.to_dict()} for program in run.programs]
    by_worker = run_processes(_work, arguments, timeout_s=timeout_s)
    periods, slowest, fastest = [], [], []
    for index in range(run.runs):
        steady = [worker[index][run.warm_up :] for worker in by_worker if worker[index]]
        single = [after - before for starts in steady for before, after in pairwise(starts)]
        periods.append(fmean(single) / 1000)
        slowest.append(max(single) / 1000)
        fastest.append(min(single) / 1000)
    return EmulatedPeriods(period_us=tuple(periods), slowest_us=tuple(slowest), fastest_us=tuple(fastest))


def _work(number: int, store: Store, argument: Mapping[str, Json]) -> Json:
    """Body of a worker: nanoseconds at which the first operation of each iteration began, of each run.

    Nothing for a worker that a plan leaves without operations.
    """
    del number
    workers = [Worker(pipeline, slot) for pipeline, slot in argument["workers"]]
    program = program_from_dict(argument["program"])
    stages = [EmulatedStage(**stage) for stage in argument["stages"]]
    compute = EmulatedCompute(stages, held_stages(program))
    starts = []
    with Links(store, workers, program.worker, timeout_s=argument["timeout_s"]) as links:
        runner = Runner(links, compute)
        runner.check(program)
        for _ in range(argument["runs"]):
            links.barrier()
            # One iteration more, whose start ends the last one that counts.
            results = [runner.run_iteration(i, program) for i in range(argument["iterations"] + 1)]
            firsts = [_first_start_ns(result) for result in results]
            starts.append([start for start in firsts if start is not None])
        links.barrier()
    return starts


def _first_start_ns(result: IterationResult) -> int | None:
    return min((event.start_ns for event in result.events if event.activity is Activity.COMPUTE), default=None)
