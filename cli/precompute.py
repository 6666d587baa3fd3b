"""``replan precompute``: plans made before anything fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.cpus import num_cpus
from cli.errors import ExitCode
from cli.parameters import Duration, Share, json_option
from cli.stores import opened_store, store_option

if TYPE_CHECKING:
    from api.precompute.executors import Executor
    from api.precompute.local import PrecomputeOutcome
    from api.precompute.options import PrecomputeOptions
    from api.precompute.progress import Progress
    from api.store import Store
    from planner.job import Job

_LINE_EVERY_S = 10.0
"""Seconds between two lines of progress where there is no terminal to draw a bar on."""


@click.command(short_help="Make plans before anything fails.")
@click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path))
@click.option(
    "--tolerance", type=click.IntRange(0, 1024), default=1, show_default=True, help="Failed workers to be ready for."
)
@click.option(
    "--mode",
    type=click.Choice(["normalized", "all"]),
    default="all",
    show_default=True,
    help="all: every distribution of the failures over the slots; normalized: for each number of failures the one that "
    "migrations lead to.",
)
@store_option
@click.option("--deadline", type=Duration(), default="1s", show_default=True, help="Time to search for each plan.")
@click.option(
    "--gap", type=Share(), default="0", show_default=True, help="Stop a search once it is this near to the bound: 1%."
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the searches.")
@click.option("--processes", type=click.IntRange(1, 256), help="Solver processes; default: one for each CPU.")
@click.option(
    "--ray",
    "ray_address",
    metavar="ADDRESS",
    help="Solve on a Ray cluster instead: ray://host:10001. Needs the extra `ray` here and RePlan on the cluster.",
)
@json_option
def precompute(
    job_path: Path,
    tolerance: int,
    mode: Literal["normalized", "all"],
    store: str | None,
    deadline: float,
    gap: float,
    seed: int,
    processes: int | None,
    ray_address: str | None,
    as_json: bool,
) -> int:
    """Plan JOB around every failure that its tolerance covers, and keep the plans in a store.

    What the store has already is not made again, so that a run that was stopped is gone on with by running it again. A
    server may use the same store meanwhile.
    """
    import asyncio

    from api.precompute.local import own_processes, ray_processes
    from api.precompute.options import PrecomputeOptions
    from planner.formats.job_file import load_job

    job = load_job(job_path)
    options = PrecomputeOptions(deadline_s=deadline, target_gap=gap, seed=seed)
    executor = own_processes(processes or num_cpus()) if ray_address is None else ray_processes(ray_address, processes)
    began = time.monotonic()
    with opened_store(store) as opened, _progress(as_json) as show:
        outcome = asyncio.run(_run(job, opened, executor, tolerance, mode, options, show))
        _report(job, opened, outcome, time.monotonic() - began, as_json=as_json)
    return ExitCode.OK


async def _run(
    job: Job,
    store: Store,
    executor: AbstractAsyncContextManager[Executor],
    tolerance: int,
    mode: Literal["normalized", "all"],
    options: PrecomputeOptions,
    show: Callable[[Progress], None],
) -> PrecomputeOutcome:
    from api.precompute.local import precompute_job

    async with executor as ready:
        return await precompute_job(
            job, store=store, executor=ready, tolerance=tolerance, mode=mode, options=options, on_progress=show
        )


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[Progress], None]]:
    """What shows progress on standard error: a bar on a terminal, a line now and then elsewhere, nothing with JSON."""
    from rich.console import Console

    console = Console(stderr=True)
    if as_json:
        yield lambda _progress: None
    elif console.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        text = TextColumn("{task.fields[left]}")
        with Bar(TextColumn("keys"), BarColumn(), MofNCompleteColumn(), text, console=console) as bar:
            task = bar.add_task("", total=None, left="starting solver processes")

            def draw(progress: Progress) -> None:
                bar.update(
                    task, total=progress.total, completed=progress.total - progress.num_left, left=_left(progress)
                )

            yield draw
    else:
        yield _print_now_and_then()


def _print_now_and_then() -> Callable[[Progress], None]:
    last = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            click.echo(f"{progress.total - progress.num_left} of {progress.total} keys, {_left(progress)}", err=True)

    return show


def _left(progress: Progress) -> str:
    seconds = progress.remaining_s
    if seconds is None:
        return "planning the first ones"
    return f"about {seconds:.0f} s left" if seconds < 120 else f"about {seconds / 60:.0f} min left"


def _report(job: Job, store: Store, outcome: PrecomputeOutcome, wall_s: float, *, as_json: bool) -> None:
    from cli.output import bytes_text, make_console, percent_text, print_facts, print_json

    operation = outcome.operation
    stored = store.template_keys(operation.job_sha256)
    gaps = sorted(facts.period_ns / facts.bound_ns - 1 for facts in stored.values() if facts.bound_ns)
    sizes = [facts.size for facts in stored.values()]
    document: dict[str, Any] = {
        "job": job.name,
        "job_sha256": operation.job_sha256,
        "mode": operation.mode,
        "tolerance": operation.tolerance,
        "operation": operation.operation_id,
        "total": operation.total,
        "done": operation.done,
        "skipped": operation.skipped,
        "failed": operation.failed,
        "failures": [
            {"failure_key": failure.failure_key, "code": failure.code, "detail": failure.message}
            for failure in outcome.failures
        ],
        "wall_s": wall_s,
        "stored": {
            "plans": len(stored),
            "bytes": sum(sizes),
            "most_bytes": max(sizes, default=0),
            "median_gap": gaps[len(gaps) // 2] if gaps else None,
            "largest_gap": gaps[-1] if gaps else None,
        },
    }
    if as_json:
        print_json(document)
        return
    click.echo(
        f"{job.name}: ready for {operation.tolerance} failed {'worker' if operation.tolerance == 1 else 'workers'} "
        f"({operation.mode}): {operation.done} plans made, "
        f"{operation.skipped} were there, {operation.failed} keys have none"
    )
    facts = [("Time", f"{wall_s:.1f} s")]
    if gaps:
        facts.append(("Gaps", f"median {percent_text(gaps[len(gaps) // 2])}, largest {percent_text(gaps[-1])}"))
        facts.append(
            ("Stored", f"{len(stored)} plans, {bytes_text(sum(sizes))}; the largest has {bytes_text(max(sizes))}")
        )
    facts += [("No plan", f"{f.failure_key} ({f.code}): {f.message}") for f in outcome.failures[:8]]
    if len(outcome.failures) > 8:
        facts.append(("", f"and {len(outcome.failures) - 8} more; --json lists all"))
    print_facts(make_console(), facts)
