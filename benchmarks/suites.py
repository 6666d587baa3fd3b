"""The suites by name: where their instances are from, and what each is solved with where nothing else is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks import generated, jobs
from benchmarks.cluster import WHOLE_COMMAND
from benchmarks.grid import GRID_SEEDS, grid
from benchmarks.instance import Instance
from benchmarks.zero_bubble import zero_bubble_rows
from planner.errors import OptionError

TIME_TO_GAP = (0.01, 0.03)
"""Gaps at which the time-to-gap rows stop."""

_WITHOUT_EXACT = "list_scheduling,annealing,improve,portfolio,techniques,rules"
"""For problems too large for the integer program and for CP-SAT on the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A list of instances.

    Parameters
    ----------
    name
        As commands and rows have it.
    summary
        What its instances are.
    source
        Whose numbers they are.
    generator
        Function that makes them.
    make
        That function.
    solvers
        Contenders and groups of them, separated by commas, where nothing else is asked for.
    timed
        The same, for rows that stop at :data:`TIME_TO_GAP`; empty for none.
    deadline_s, target_gap
        Of each search, where nothing else is asked for.
    alone
        Whether nothing else may run beside one of its rows: its times are what it is for.
    seeds
        Seeds of its generator.
    """

    name: str
    summary: str
    source: str
    generator: str
    make: Callable[[], Iterator[Instance]]
    solvers: str
    timed: str = ""
    deadline_s: float = 5.0
    target_gap: float = 0.0
    alone: bool = False
    seeds: tuple[int, ...] = ()


def _grid() -> Iterator[Instance]:
    return (Instance(name=item.name, problem=item.problem) for item in grid())


def _zero_bubble() -> Iterator[Instance]:
    for row in zero_bubble_rows():
        rate = row.published_rate
        yield Instance(
            name=row.name,
            problem=row.problem,
            # It has four digits: no period that rounds to it is above this one.
            published_ns=None if rate is None else int(row.work_ns / (1 - rate - 0.00005)),
            published_by="" if rate is None else "Zero Bubble, table 5",
        )


_SUITES = (
    Suite(
        name="worked",
        summary="ReCycle's worked example around each slot's failure, and the problem of a third-party re-implementation",
        source="ReCycle (SOSP 2024), sections 3 and 4",
        generator="benchmarks.jobs.worked_example",
        make=jobs.worked_example,
        solvers="solvers,techniques,rules",
        deadline_s=2.0,
    ),
    Suite(
        name="small",
        summary="problems small enough for the integer program",
        source="the worked example's costs",
        generator="benchmarks.generated.small",
        make=generated.small,
        solvers="solvers,techniques",
    ),
    Suite(
        name="grid",
        summary="the failure grid: sizes, failures, memory, stage shapes and transfers",
        source="drawn",
        generator="benchmarks.grid.grid",
        make=_grid,
        solvers="solvers,techniques,rules",
        timed="list_scheduling,annealing,portfolio",
        seeds=GRID_SEEDS,
    ),
    Suite(
        name="zero-bubble",
        summary="Zero Bubble's twelve measured rows, at 1F1B's memory and twice that, and as a V",
        source="Zero Bubble (ICLR 2024), tables 5 and 6",
        generator="benchmarks.zero_bubble.zero_bubble_rows",
        make=_zero_bubble,
        solvers=_WITHOUT_EXACT,
    ),
    Suite(
        name="placements",
        summary="two stages a slot, as a V and as a loop",
        source="drawn",
        generator="benchmarks.generated.placements",
        make=generated.placements,
        solvers=_WITHOUT_EXACT,
        seeds=(generated.PLACEMENT_SEED,),
        deadline_s=2.0,
    ),
    Suite(
        name="speeds",
        summary="workers at 7/8 and at 0.7 of full speed, equal and uneven stages",
        source="drawn",
        generator="benchmarks.generated.speeds",
        make=generated.speeds,
        solvers=_WITHOUT_EXACT,
        seeds=(generated.SPEED_SEED,),
        deadline_s=2.0,
    ),
    Suite(
        name="llama",
        summary="fifty random sets of failed nodes of Llama 3 405B on 16,384 GPUs",
        source="Llama 3 (2024): layout and failures; costs estimated in examples/llama3-405b.yaml",
        generator="benchmarks.jobs.llama",
        make=jobs.llama,
        solvers="list_scheduling,portfolio",
        deadline_s=0.7,
        seeds=tuple(range(jobs.LLAMA_SETS)),
    ),
    Suite(
        name="growth",
        summary="1,536 to 10,000,128 operations",
        source="made by rule",
        generator="benchmarks.generated.growth",
        make=generated.growth,
        solvers="list_scheduling",
        # The first list schedule is within it for every size: one is built, no more.
        target_gap=0.05,
        alone=True,
    ),
    Suite(
        name="cluster",
        summary="whole commands on 16,384 and 131,072 GPUs, also placed as a V and as a loop",
        source="the llama suite's job",
        generator="benchmarks.jobs.clusters",
        make=jobs.clusters,
        solvers=f"list_scheduling,portfolio,techniques,{WHOLE_COMMAND}",
        deadline_s=2.0,
        alone=True,
    ),
)

SUITES: Mapping[str, Suite] = MappingProxyType({suite.name: suite for suite in _SUITES})
"""Every suite, in the order in which they are run."""

ALL = "all"


def suites_named(names: Iterable[str]) -> tuple[Suite, ...]:
    """Suites of some names, each once, in the order given; ``all`` stands for every one.

    Raises
    ------
    OptionError
        If there is none of a name.
    """
    found: list[str] = []
    for name in names:
        if name != ALL and name not in SUITES:
            raise OptionError(f"there is no suite {name!r}; expected some of {', '.join((ALL, *SUITES))}")
        found.extend(SUITES if name == ALL else (name,))
    return tuple(SUITES[name] for name in dict.fromkeys(found))
