"""``replan plan``: plan a job around what failed."""

from __future__ import annotations

from pathlib import Path

import click

from cli.parameters import Duration, Share, failure_options, json_option, require_writable


@click.command(
    short_help="Plan a job around what failed.",
    epilog="\b\nreplan plan job.yaml --fail 'gpu[0007,0100-0103]' -o plan.json\n"
    "replan plan job.yaml --fail worker:1/2 --degrade rank:17=0.7 --deadline 5s",
)
@failure_options
@click.option("--deadline", type=Duration(), default="2s", show_default=True, help="Time to search in: 2s, 500ms, 1m.")
@click.option(
    "--gap", type=Share(), default="0", show_default=True, help="Stop once the period is this near to the bound: 1%."
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the search.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Threads to search with.")
@click.option(
    "--deterministic",
    is_flag=True,
    help="Count the deadline in work, not by the wall clock: the same options then give the same plan every time.",
)
@click.option(
    "--migrate/--no-migrate",
    default=None,
    help="Move workers between slots where that shortens the period; or do not even look. "
    "Default: plan in place and advise moves that pay back.",
)
@click.option(
    "--shards-restored",
    is_flag=True,
    help="Optimizer shards that the failures took have been restored from a checkpoint.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the plan here; whole or not at all."
)
@json_option
def plan(
    job_path: Path,
    fail: tuple[str, ...],
    degrade: tuple[str, ...],
    deadline: float,
    gap: float,
    seed: int,
    workers: int,
    deterministic: bool,
    migrate: bool | None,
    shards_restored: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Plan JOB around what failed, prove how good the plan is, and write it to a file."""
    require_writable(output)
    from planner.failures import parse_failures
    from planner.formats.job_file import load_job
    from solver_models.result import SolveOptions

    job = load_job(job_path)
    failures = parse_failures(job, fail, degrade)
    options = SolveOptions(deadline_s=deadline, target_gap=gap, seed=seed, workers=workers, deterministic=deterministic)
    from solver_models.compilation import watched_compilation
    from solver_models.planning import make_plan

    with watched_compilation() as compilation:
        made = make_plan(job, failures, options, migrate=migrate, shards_restored=shards_restored)
    if compilation and not deterministic and made.gap != 0 and (made.gap is None or made.gap > gap):
        # The first run after an installation compiles, which no deadline covers; then the search gets its time.
        from solver_models.warm_up import warm_up

        warm_up()
        made = make_plan(job, failures, options, migrate=migrate, shards_restored=shards_restored)
    if output is not None:
        from planner.formats.plan_file import write_plan

        write_plan(made, output)
    if as_json:
        from cli.output import print_json
        from planner.formats.plan_summary import plan_summary

        print_json(plan_summary(made) | {"output": None if output is None else str(output)})
    else:
        from cli.report import print_plan

        print_plan(made, output)
