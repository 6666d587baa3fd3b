"""``replan replay``: run a plan's order for several iterations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.parameters import Share, json_option, plan_argument, schedule_file_options
from cli.schedule_file import read_assessment, require_plan

if TYPE_CHECKING:
    from planner.replay import Replay


@click.command(short_help="Run a plan for several iterations.")
@plan_argument
@click.option(
    "--iterations", type=click.IntRange(1), default=10, show_default=True, help="Iterations to run, up to 1024."
)
@click.option(
    "--jitter",
    type=Share(),
    default="0",
    show_default=True,
    help="Random change of every duration, up to this much: 5%.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the jitter.")
@schedule_file_options
@json_option
def replay(
    plan_path: Path,
    iterations: int,
    jitter: float,
    seed: int,
    job_path: Path | None,
    microbatches: int | None,
    as_json: bool,
) -> None:
    """Run PLAN's order as early as possible, iteration after iteration, and report what really happens.

    With --job PLAN is a PyTorch schedule file of one pipeline, run with the job's costs.
    """
    from planner.replay import replay as run_replay

    if job_path is None:
        require_plan(plan_path, microbatches)
        from planner.formats.plan_file import read_plan
        from planner.plan_check import check_plan

        plan = read_plan(plan_path)
        check_plan(plan)
        problem, schedule, period_ns = plan.problem, plan.schedule, plan.period_ns
        plan_id, of, claim = plan.plan_id, f" of {plan.job_name}", ", as the plan claims"
    else:
        found = read_assessment(plan_path, job_path, microbatches)
        found.require_valid()
        assert found.schedule is not None
        assert found.period_ns is not None
        problem, schedule, period_ns = found.problem, found.schedule, found.period_ns
        plan_id, of, claim = None, "", ""
    run = run_replay(problem, schedule, iterations=iterations, jitter=jitter, seed=seed)
    if as_json:
        from cli.output import print_json

        print_json({"plan_id": plan_id, "jitter": jitter, "seed": seed, **_document(run, period_ns)})
    else:
        _print(f"{plan_path}: {run.iterations} iterations{of}", run, period_ns, claim=claim, with_jitter=jitter > 0)


def _document(run: Replay, period_ns: int) -> dict[str, object]:
    return {
        "iterations": run.iterations,
        "claimed_period_us": period_ns / 1000,
        "period_us": run.period_ns / 1000,
        "exact_period_ns": str(run.period),
        "mean_period_us": run.mean_period_ns / 1000,
        "steady_iteration": run.steady_iteration,
        "makespans_us": [value / 1000 for value in run.makespans_ns],
        "bubble_ratio": run.bubble_ratio,
        "utilisation": list(run.utilisation),
        "peak_memory_bytes": list(run.peak_bytes),
    }


def _print(title: str, run: Replay, period_ns: int, *, claim: str, with_jitter: bool) -> None:
    from cli.output import bytes_text, duration_text, make_console, percent_text, print_facts, print_table

    console = make_console()
    console.print(title, style="bold")
    facts = [("Period", f"{duration_text(run.period_ns)} in the steady state{claim}")]
    if with_jitter:
        slower = run.mean_period_ns / period_ns - 1 if period_ns else 0.0
        facts.append(
            (
                "With jitter",
                f"{duration_text(round(run.mean_period_ns))} on average ({100 * slower:+.2f} % of the period)",
            )
        )
    elif run.steady_iteration is not None:
        facts.append(("Settled", f"from iteration {run.steady_iteration} on every iteration repeats to the tick"))
    facts.append(("Makespan", f"{duration_text(min(run.makespans_ns))} to {duration_text(max(run.makespans_ns))}"))
    facts.append(("Bubbles", f"{percent_text(run.bubble_ratio)} of live workers' time"))
    print_facts(console, facts)
    rows = [
        [str(s), percent_text(share), bytes_text(peak)]
        for s, (share, peak) in enumerate(zip(run.utilisation, run.peak_bytes, strict=True))
    ]
    print_table(console, ["slot", "utilisation", "peak memory"], rows)
