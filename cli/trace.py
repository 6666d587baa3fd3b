"""``replan trace``: traces of failures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from cli.long_duration import LongDuration
from cli.parameters import FiniteRange, Share, json_option, require_writable
from planner.errors import OptionError

_PUBLISHED = ("llama3", "rsc1", "rsc2")
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?")


class Rate(click.ParamType[float]):
    """Failures a thousand node-days: a number, or whose published rate."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn the text into failures a node and day."""
        text = str(value)
        if text in _PUBLISHED:
            from simulation.constants import FAILURES_PER_NODE_DAY

            return FAILURES_PER_NODE_DAY[text]
        if _NUMBER.fullmatch(text) is None or not float(text):
            self.fail(
                f"{value!r} is no rate; expected failures a thousand node-days, or {', '.join(_PUBLISHED)}", param, ctx
            )
        return float(text) / 1000


def _failures_per_node_day(rate: float | None, mtbf: float | None, nodes: int) -> float:
    from simulation.constants import FAILURES_PER_NODE_DAY

    if mtbf is not None:
        return 86_400 / mtbf / nodes
    return FAILURES_PER_NODE_DAY["rsc1"] if rate is None else rate


@click.group(short_help="Traces of failures.")
def trace() -> None:
    """Make traces of node losses and returns, for `replan simulate`."""


@trace.command(
    short_help="Draw a trace at random.",
    epilog="\b\nreplan trace generate job.yaml --rate llama3 --duration 7d -o trace.csv\n"
    "replan trace generate job.yaml --model bursty --mtbf 2h --duration 24h --seed 1 -o trace.csv",
)
@click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path))
@click.option(
    "--model",
    type=click.Choice(["exponential", "weibull", "bursty"]),
    default="exponential",
    show_default=True,
    help="Nodes fail on their own, at a constant rate or (weibull) sooner after a repair; bursty: some losses take a whole rack.",
)
@click.option(
    "--rate",
    type=Rate(),
    help="Failures a thousand node-days: a number, or what was published of llama3, rsc1 or rsc2.  [default: rsc1]",
)
@click.option("--mtbf", type=LongDuration(), help="Instead of --rate: mean time between failures anywhere in the job.")
@click.option("--repair", type=LongDuration(), help="Mean time until a lost node is back.  [default: the job's, or 2h]")
@click.option("--shape", type=FiniteRange(0.1, 10), help="Shape of weibull; below 1 failures cluster.  [default: 0.7]")
@click.option("--rack-share", type=Share(), help="Share of bursty's losses that are by whole racks.  [default: 10%]")
@click.option("--duration", type=LongDuration(), default="7d", show_default=True, help="How long: 90s, 30m, 6h, 2d.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the draw.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", required=True, help="Write the trace here."
)
@json_option
def generate(
    job_path: Path,
    model: str,
    rate: float | None,
    mtbf: float | None,
    repair: float | None,
    shape: float | None,
    rack_share: float | None,
    duration: float,
    seed: int,
    output: Path,
    as_json: bool,
) -> None:
    """Draw a trace of the nodes of JOB, all up at the start, and write it as CSV."""
    require_writable(output)
    for option, value, needed in (("--shape", shape, "weibull"), ("--rack-share", rack_share, "bursty")):
        if value is not None and model != needed:
            raise OptionError(f"{option} is of --model {needed}; the model is {model}")
    if mtbf is not None and rate is not None:
        raise OptionError("--rate and --mtbf both say how often nodes fail; expected one of them")
    from planner.formats.job_file import load_job
    from simulation.constants import RACK_SHARE, REPAIR_S, WEIBULL_SHAPE
    from simulation.generation import FailureModel, GenerationOptions, generate_trace
    from simulation.trace import TraceEventKind
    from simulation.trace_file import write_trace

    job = load_job(job_path)
    nodes = job.topology.num_nodes
    options = GenerationOptions(
        model=FailureModel(model),
        failures_per_node_day=_failures_per_node_day(rate, mtbf, nodes),
        repair_s=repair or job.recovery.repair_s or REPAIR_S,
        duration_s=duration,
        seed=seed,
        shape=WEIBULL_SHAPE if shape is None else shape,
        rack_share=RACK_SHARE if rack_share is None else rack_share,
    )
    made = generate_trace(job.topology, options, name=output.stem)
    write_trace(made, output)
    losses = sum(event.kind is TraceEventKind.REMOVE for event in made.events)
    if as_json:
        from cli.output import print_json

        print_json(
            {
                "job": job.name,
                "model": model,
                "failures_per_node_day": options.failures_per_node_day,
                "repair_s": options.repair_s,
                "duration_s": duration,
                "seed": seed,
                "losses": losses,
                "returns": len(made.events) - losses,
                "output": str(output),
            }
        )
        return
    click.echo(
        f"{job.name}: {losses} losses and {len(made.events) - losses} returns of {nodes} nodes in {duration / 3600:g} h, "
        f"seed {seed}, written to {output}"
    )
