"""A run: which rows there are to be, and measuring those that a file of results lacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from benchmarks.best_known import check_instances, read_stored
from benchmarks.contenders import contenders_named
from benchmarks.errors import BenchmarkMismatchError, BenchmarkSourceError
from benchmarks.instance import Instance
from benchmarks.pool import Pool, Task
from benchmarks.provenance import Provenance, here
from benchmarks.results_file import ResultsWriter
from benchmarks.row import Key, Measurement, Row
from benchmarks.suites import TIME_TO_GAP, Suite
from planner.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What to measure.

    Parameters
    ----------
    suites
        At least one.
    solvers
        Contenders and groups, separated by commas; ``None`` for each suite's own.
    seeds
        Seeds of the searches.
    deadline_s, target_gap
        Of each search; ``None`` for each suite's own.
    wall_clock
        Whether deadlines are of the wall clock; by default they count work, so that the same seeds give the same plans.
    workers
        Threads of each search.
    instances
        Pattern of instance names, with ``*`` and ``?``.
    processes
        Rows that are measured at once.
    force
        Go on with a file of another commit, other packages or another machine; its new rows say so.
    """

    suites: tuple[Suite, ...]
    solvers: str | None = None
    seeds: tuple[int, ...] = (0,)
    deadline_s: float | None = None
    target_gap: float | None = None
    wall_clock: bool = False
    workers: int = 1
    instances: str = "*"
    processes: int = 1
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a run did.

    Parameters
    ----------
    measured, skipped
        Rows measured now, and rows that were there before.
    failed
        Rows, of those measured now, that nothing should have: a broken constraint, a process that died or overran.
    cut_short
        Whether a half-written row at the end of the file was dropped.
    source_changed
        Whether the sources are no longer those that the run began with, so that its rows may be of both.
    """

    measured: int
    skipped: int
    failed: tuple[Row, ...]
    cut_short: bool
    source_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is: the row just measured, its number, and how many there are to measure."""

    row: Row
    number: int
    total: int


def run(options: RunOptions, path: Path, report: Callable[[Progress], None] = lambda _progress: None) -> RunSummary:
    """Measure every row that a file lacks and add it there.

    Parameters
    ----------
    options
        What to measure.
    path
        The file; it is made where there is none.
    report
        Called after each row.

    Raises
    ------
    OptionError
        If there is no solver of a name, or no instance fits the pattern.
    BenchmarkMismatchError
        If an instance, or the file, is not what it was.
    BenchmarkSourceError
        If the file has rows of another commit, other packages or another machine.
    BenchmarkFileError, BenchmarkVersionError
        If the file cannot be gone on with.
    """
    source = here()
    stored = read_stored()
    hashes: dict[tuple[str, str], str] = {}
    tasks: list[Task] = []
    for suite in options.suites:
        made = [instance for instance in suite.make() if fnmatchcase(instance.name, options.instances)]
        check_instances(suite, made, stored)
        hashes |= {(suite.name, instance.name): instance.sha256() for instance in made}
        tasks.extend(_tasks(suite, made, options))
    if not tasks:
        raise OptionError(f"no instance of these suites is called {options.instances!r}")
    failed: list[Row] = []
    number = 0
    with ResultsWriter(
        path, [suite.name for suite in options.suites], "wall" if options.wall_clock else "work", options.workers
    ) as file:
        forced = _require_same_source(source, file.rows, force=options.force)
        done = _require_same_instances(file.rows, hashes)
        left = [task for task in tasks if _key(task) not in done]
        with Pool(options.processes) as pool:
            for task, found in pool.run(left):
                row = _row(task, found, hashes[task.suite, task.instance], source, forced)
                file.add(row)
                number += 1
                if row.is_failure:
                    failed.append(row)
                report(Progress(row=row, number=number, total=len(left)))
        now = here()
        return RunSummary(
            measured=number,
            skipped=len(tasks) - len(left),
            failed=tuple(failed),
            cut_short=file.cut_short,
            source_changed=(now.commit, now.changes) != (source.commit, source.changes),
        )


def _tasks(suite: Suite, instances: Sequence[Instance], options: RunOptions) -> Iterator[Task]:
    """All rows of a suite, instance by instance."""
    target = suite.target_gap if options.target_gap is None else options.target_gap
    solvers = [
        (name, target) for name in contenders_named(suite.solvers if options.solvers is None else options.solvers)
    ]
    if suite.timed and options.solvers is None and options.target_gap is None:
        solvers += product(contenders_named(suite.timed), TIME_TO_GAP)
    for instance, (solver, gap), seed in product(instances, solvers, options.seeds):
        yield Task(
            suite=suite.name,
            instance=instance.name,
            solver=solver,
            seed=seed,
            deadline_s=suite.deadline_s if options.deadline_s is None else options.deadline_s,
            target_gap=gap,
            deterministic=not options.wall_clock,
            workers=options.workers,
            operations=instance.num_operations,
            alone=suite.alone,
        )


def _key(task: Task) -> Key:
    return (task.suite, task.instance, task.solver, task.seed, task.deadline_s, task.target_gap)


def _require_same_source(source: Provenance, rows: Sequence[Row], *, force: bool) -> tuple[str, ...]:
    """Names of what earlier rows were measured with otherwise.

    Raises
    ------
    BenchmarkSourceError
        If there are any, and this is not forced.
    """
    differing = {name: row for row in rows for name in source.differences(row.source)}
    if differing and not force:
        mine = source.to_dict()
        told = "; ".join(f"{name} {row.source[name]}, here {mine[name]}" for name, row in sorted(differing.items()))
        raise BenchmarkSourceError(
            f"the file has rows with another {' and '.join(sorted(differing))}: {told}",
            hint="write to another file, or go on with --force: the new rows then say what differs",
        )
    return tuple(sorted(differing))


def _require_same_instances(rows: Sequence[Row], hashes: Mapping[tuple[str, str], str]) -> set[Key]:
    """Keys of the rows that are there.

    Raises
    ------
    BenchmarkMismatchError
        If one of them is of another problem than its instance now.
    """
    for row in rows:
        if hashes.get((row.suite, row.instance), row.instance_sha256) != row.instance_sha256:
            raise BenchmarkMismatchError(
                f"the file's rows of instance {row.instance} of suite {row.suite} are of another problem than that instance now",
                hint="write to another file",
            )
    return {row.key for row in rows}


def _row(task: Task, found: Measurement, sha256: str, source: Provenance, forced: tuple[str, ...]) -> Row:
    return Row(
        suite=task.suite,
        instance=task.instance,
        instance_sha256=sha256,
        operations=task.operations,
        solver=task.solver,
        seed=task.seed,
        deadline_s=task.deadline_s,
        target_gap=task.target_gap,
        workers=task.workers,
        load=round(os.getloadavg()[0], 2),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        forced=forced,
        **source.to_dict(),
        **asdict(found),
    )
