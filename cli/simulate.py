"""``replan simulate``: what ways to survive failures make of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.long_duration import LongDuration
from cli.parameters import Duration, FiniteRange, json_option, require_writable
from planner.errors import OptionError

if TYPE_CHECKING:
    from planner.job import Job
    from simulation.outcome import Outcome
    from simulation.trace import Trace

_SHOWN_CAUSES = 3
_LEAST_SHOWN = 0.001


@click.command(
    short_help="Play a trace of failures against ways to survive them.",
    epilog="\b\nreplan simulate job.yaml --trace trace.csv --duration 7d --plot goodput.png\n"
    "replan simulate job.yaml --trace spot.csv --instances --policy replan,checkpoint-restart --json",
)
@click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path))
@click.option(
    "--trace",
    "trace_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="CSV: seconds,event,node.",
)
@click.option(
    "--instances",
    is_flag=True,
    help="The trace names instances of a spot market: they take the job's nodes in order of arrival.",
)
@click.option("--duration", type=LongDuration(), help="How long to simulate.  [default: to the last event]")
@click.option(
    "--ready-after",
    type=LongDuration(),
    help="From a node's return until it can train: processes start, state is copied.  [default: at once]",
)
@click.option(
    "--policy", "policy", default="all", show_default=True, help="Policies by name, separated by commas, or all."
)
@click.option(
    "--deadline",
    type=Duration(),
    default="500ms",
    show_default=True,
    help="Time to search in for each plan: 2s, 500ms.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the searches.")
@click.option(
    "--samples-per-microbatch",
    type=FiniteRange(1e-9, 1e9),
    default=1.0,
    show_default=True,
    help="What goodput counts.",
)
@click.option("--price", type=FiniteRange(0, 1e9), help="Price of a GPU hour, in any unit of money.")
@click.option(
    "--plot", "plot_path", type=click.Path(path_type=Path), metavar="FILE", help="Draw all over time: .png or .svg."
)
@json_option
def simulate(
    job_path: Path,
    trace_path: Path,
    instances: bool,
    duration: float | None,
    ready_after: float | None,
    policy: str,
    deadline: float,
    seed: int,
    samples_per_microbatch: float,
    price: float | None,
    plot_path: Path | None,
    as_json: bool,
) -> None:
    """Play a trace of node losses and returns against JOB: useful samples a second of each policy, and why time was lost."""
    require_writable(plot_path)
    kind = _kind_of(plot_path)
    from planner.formats.job_file import load_job
    from simulation.policies.registry import policies_named
    from simulation.readiness import ready_later
    from simulation.run import Simulation
    from simulation.seats import seat_instances
    from simulation.trace_file import read_trace
    from solver_models.result import SolveOptions

    names = policies_named(policy)
    job = load_job(job_path)
    trace = read_trace(trace_path, None if instances else job.topology, duration_s=duration)
    if instances:
        trace = seat_instances(trace, job.topology.nodes)
    if ready_after is not None:
        trace = ready_later(trace, ready_after)
    simulation = Simulation(
        job=job,
        options=SolveOptions(deadline_s=deadline, target_gap=0.01, seed=seed),
        samples_per_microbatch=samples_per_microbatch,
    )
    outcomes = simulation.play(trace, names)
    if plot_path is not None:
        from planner.formats.whole_file import whole_file
        from simulation.plot import plot_outcomes

        with whole_file(plot_path) as file:
            plot_outcomes(job, trace, outcomes, file, kind)
    if as_json:
        from cli.output import print_json
        from simulation.document import outcome_document

        print_json(
            {
                "job": job.name,
                "trace": trace.name,
                "duration_s": trace.duration_s,
                "events": len(trace.events),
                "plans": simulation.num_keys,
                "fault_free_samples_per_s": outcomes[0].fault_free_samples_per_s,
                "policies": [outcome_document(outcome, price) for outcome in outcomes],
                "plot": None if plot_path is None else str(plot_path),
            }
        )
        return
    _print(job, trace, outcomes, price)
    if plot_path is not None:
        click.echo(f"plot written to {plot_path}")


def _kind_of(path: Path | None) -> str:
    if path is None:
        return ""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise OptionError(f"the plot {path} ends in {path.suffix or 'nothing'}; expected .png or .svg")
    return kind


def _print(job: Job, trace: Trace, outcomes: tuple[Outcome, ...], price: float | None) -> None:
    from cli.output import make_console, percent_text, print_table

    best = outcomes[0].fault_free_samples_per_s
    console = make_console()
    console.print(
        f"{job.name} on {trace.name}: {trace.duration_s / 3600:.4g} h, {len(trace.events)} events; "
        f"{best:.4g} samples/s without failures",
        style="bold",
    )
    money = "GPU h" if price is None else "cost"
    rows = []
    for outcome in outcomes:
        per_million = outcome.gpu_hours_per_million
        rows.append(
            [
                outcome.policy,
                f"{outcome.goodput:.4g}",
                percent_text(outcome.share),
                "never" if per_million is None else f"{per_million * (1 if price is None else price):.4g}",
                "" if outcome.keeps_batch else "smaller batch",
                _causes(outcome),
            ]
        )
    print_table(console, ["policy", "samples/s", "of fault-free", f"{money}/1e6", "", "lost to"], rows)


def _causes(outcome: Outcome) -> str:
    """The causes that took most, each with its share of the time."""
    shares = sorted(((s / outcome.duration_s, cause) for cause, s in outcome.lost_s.items()), reverse=True)
    shown = [f"{cause} {share:.1%}" for share, cause in shares[:_SHOWN_CAUSES] if share >= _LEAST_SHOWN]
    if not outcome.is_exact:
        shown.append("not exact")
    return ", ".join(shown)
