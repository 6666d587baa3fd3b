"""``replan replay``: run a plan's order for several iterations."""

from __future__ import annotations

from pathlib import Path

import click

from cli.parameters import Share, json_option, plan_argument


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
@json_option
def replay(plan_path: Path, iterations: int, jitter: float, seed: int, as_json: bool) -> None:
    """Run PLAN's order as early as possible, iteration after iteration, and report what really happens."""
    from planner.formats.plan_file import read_plan
    from planner.plan_check import check_plan
    from planner.replay import replay as run_replay

    plan = read_plan(plan_path)
    check_plan(plan)
    run = run_replay(plan.problem, plan.schedule, iterations=iterations, jitter=jitter, seed=seed)
    if as_json:
        from cli.output import print_json

        print_json(
            {
                "plan_id": plan.plan_id,
                "iterations": run.iterations,
                "jitter": jitter,
                "seed": seed,
                "claimed_period_us": plan.period_ns / 1000,
                "period_us": run.period_ns / 1000,
                "exact_period_ns": str(run.period),
                "mean_period_us": run.mean_period_ns / 1000,
                "steady_iteration": run.steady_iteration,
                "makespans_us": [value / 1000 for value in run.makespans_ns],
                "bubble_ratio": run.bubble_ratio,
                "utilisation": list(run.utilisation),
                "peak_memory_bytes": list(run.peak_bytes),
            }
        )
        return
    from cli.output import bytes_text, duration_text, make_console, percent_text, print_facts, print_table

    console = make_console()
    console.print(f"{plan_path}: {run.iterations} iterations of {plan.job_name}", style="bold")
    facts = [("Period", f"{duration_text(run.period_ns)} in the steady state, as the plan claims")]
    if jitter:
        slower = run.mean_period_ns / plan.period_ns - 1 if plan.period_ns else 0.0
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
