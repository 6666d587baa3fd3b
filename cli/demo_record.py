"""What ``replan demo train`` shows while it runs, leaves behind, and says at the end."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from replan_client.torch.demo.happenings import (
    CostsMeasured,
    EpochBegun,
    Happening,
    IterationDone,
    Killed,
    LetIn,
    ReferenceTrained,
    Resumed,
    Returning,
    ServiceStarted,
)

from cli.output import duration_text, percent_text, print_json

if TYPE_CHECKING:
    from replan_client.epochs import Epoch, EpochPlan, Migration
    from replan_client.torch.demo.run import Outcome
    from replan_client.torch.demo.scenario import Scenario
    from replan_client.torch.demo.verdict import Verdict

    from planner.plan import Plan

_PLAN_TIMEOUT_S = 60.0
_SOURCES = {"store": "ready before", "solved": "solved now", "improved": "improved meanwhile"}


class Recorder:
    """Hears what happens: prints it, keeps it for the final document, and writes job file and traces.

    Parameters
    ----------
    scenario
        What is trained.
    folder
        Where files are left.
    is_quiet
        Whether only one JSON document is printed, at the end.
    """

    def __init__(self, scenario: Scenario, folder: Path, *, is_quiet: bool) -> None:
        self._scenario = scenario
        self._folder = folder
        self._is_quiet = is_quiet
        self._url = ""
        self._epochs: list[dict[str, Any]] = []
        self._iterations: list[dict[str, Any]] = []
        self._kills: list[dict[str, Any]] = []
        self._planned: list[str] = []

    def begin(self) -> None:
        """Say what is going to happen."""
        one = self._scenario
        self._say(
            f"A small GPT on this machine's CPU: {one.num_pipelines} pipelines x {one.num_slots} slots, "
            f"{len(one.names)} worker processes, {one.num_iterations} iterations of {one.batch} microbatches, {one.precision}",
            bold=True,
        )

    def happened(self, happening: Happening) -> None:
        """Take one thing that happened."""
        if isinstance(happening, EpochBegun):
            self._epoch(happening.job_id, happening.epoch)
        elif isinstance(happening, IterationDone):
            self._iteration(happening)
        elif isinstance(happening, Killed):
            kill = happening.kill
            self._kills.append({"worker": kill.worker, "iteration": kill.iteration, "forward": kill.forward})
            self._say(
                f"SIGKILL to worker {kill.worker} (process {happening.pid}), in the middle of iteration {kill.iteration}",
                colour="red",
            )
        elif isinstance(happening, Resumed):
            self._say(
                f"  goes on    with iteration {happening.iteration} in epoch {happening.epoch}; "
                f"first worker through it {happening.seconds:.1f} s after the kill"
            )
            self._kills[-1] |= {"goes_on_with": happening.iteration, "seconds": round(happening.seconds, 3)}
        elif isinstance(happening, Returning):
            self._say(
                f"Worker {happening.comes_back.worker} is started again; the others wait for it, to keep this short",
                colour="green",
            )
        elif isinstance(happening, LetIn):
            self._say(
                f"  let in     {happening.worker} is there after {happening.seconds:.1f} s, and copies what it missed"
            )
        else:
            self._preparation(happening)

    def end(self, outcome: Outcome) -> None:
        """Write the executed trace, and say what came of it."""
        from replan_client.torch.trace import write_trace

        executed = self._folder / "executed.trace.json"
        write_trace(outcome.timelines, executed, num_slots=self._scenario.num_slots, held_bytes=outcome.held_bytes)
        if self._is_quiet:
            print_json(self._document(outcome, executed))
            return
        self._conclude(outcome.verdict, executed)

    def _preparation(self, happening: ServiceStarted | CostsMeasured | ReferenceTrained) -> None:
        if isinstance(happening, ServiceStarted):
            self._url = happening.url
            self._say(f"  service    {happening.url}, for as long as this runs")
        elif isinstance(happening, CostsMeasured):
            path = self._folder / "job.json"
            path.write_text(json.dumps(happening.document, indent=2) + "\n")
            stages = happening.document["stages"]
            times = [
                sum(stage[f"{kind}_us"] for stage in stages) / len(stages)
                for kind in ("forward", "input_grad", "weight_grad")
            ]
            shown = ", ".join(
                f"{kind} {duration_text(1000 * round(us))}" for kind, us in zip("FIW", times, strict=True)
            )
            self._say(f"  costs      measured, on average over the stages: {shown}")
        else:
            losses = happening.losses
            self._say(
                f"  reference  one process trained the same without failures: loss {losses[0]:.4f} to {losses[-1]:.4f}"
            )

    def _iteration(self, done: IterationDone) -> None:
        difference = abs(done.loss / done.reference_loss - 1)
        verdict = "equal" if difference <= self._scenario.tolerance else f"DIFFERENT by {difference:.1e}"
        self._iterations.append(
            {
                "iteration": done.iteration,
                "epoch": done.epoch,
                "loss": _finite(done.loss),
                "reference_loss": _finite(done.reference_loss),
            }
        )
        self._say(
            f"  iteration {done.iteration:>3}   loss {done.loss:.10f}   undisturbed {done.reference_loss:.10f}   {verdict}"
        )

    def _epoch(self, job_id: str, epoch: Epoch) -> None:
        entry: dict[str, Any] = {
            "epoch": epoch.epoch,
            "cause": epoch.cause,
            "failed_workers": list(epoch.failed_workers),
            "moved": dict(epoch.moved),
            "migrations": [
                {"worker": m.worker, "position": m.position, "copy_from": m.copy_from} for m in epoch.migrations
            ],
            "period_us": None,
            "source": epoch.body.get("source"),
            "solver": None,
            "takes_over": [],
            "planned_trace": None,
        }
        self._epochs.append(entry)
        down = f"down: {', '.join(epoch.failed_workers)}" if epoch.failed_workers else "everybody live"
        if epoch.plan is None:
            assert epoch.problem is not None
            self._say(f"Epoch {epoch.epoch} ({epoch.cause}), {down}: no plan, {epoch.problem.message}", colour="yellow")
            return
        self._say(
            f"Epoch {epoch.epoch} ({epoch.cause}), {down}; {_plan_text(epoch.plan, entry['source'])}", colour="cyan"
        )
        plan = self._fetch_plan(job_id, epoch.epoch)
        entry |= {
            "period_us": epoch.plan.period_us,
            "solver": epoch.plan.solver,
            "takes_over": _takes_over(plan),
            "planned_trace": str(self._write_planned(plan, epoch.epoch)),
        }
        for move in epoch.migrations:
            self._say(f"  moves      {_move_text(move)}")
        for line in entry["takes_over"]:
            self._say(f"  takes over {line}")

    def _fetch_plan(self, job_id: str, number: int) -> Plan:
        """The epoch's plan, checked as plan files are."""
        from cli.service.client import ServiceClient, parse_address
        from planner.formats.plan_file import load_plan

        with ServiceClient(parse_address(self._url), timeout_s=_PLAN_TIMEOUT_S) as client:
            return load_plan(client.get("jobs", job_id, "epochs", str(number), "plan").body)

    def _write_planned(self, plan: Plan, number: int) -> Path:
        from cli.show.selection import all_workers
        from planner.formats.chrome_trace import write_trace

        path = self._folder / f"planned-epoch-{number}.trace.json"
        write_trace(plan, all_workers(plan), path)
        self._planned.append(str(path))
        return path

    def _conclude(self, verdict: Verdict, executed: Path) -> None:
        self._say(
            f"{'Equal' if verdict.is_equal else 'DIFFERENT'}: parameters of {verdict.num_workers} workers differ from those of "
            f"undisturbed training by at most {verdict.parameters:.1e}, losses by {verdict.losses:.1e} "
            f"(tolerance {verdict.tolerance:g})",
            bold=True,
            colour="green" if verdict.is_equal else "red",
        )
        for number, path in enumerate(self._planned):
            self._say(f"  {'planned' if not number else '':<10} {path}")
        self._say(f"  executed   {executed}")
        self._say(
            "  Open them side by side at https://ui.perfetto.dev. job.json beside them can be planned with: replan plan"
        )

    def _document(self, outcome: Outcome, executed: Path) -> dict[str, Any]:
        one, verdict = self._scenario, outcome.verdict
        return {
            "equal": verdict.is_equal,
            "parameters_difference": _finite(verdict.parameters),
            "losses_difference": _finite(verdict.losses),
            "tolerance": verdict.tolerance,
            "compared_workers": verdict.num_workers,
            "num_pipelines": one.num_pipelines,
            "num_slots": one.num_slots,
            "num_microbatches": one.num_microbatches,
            "num_iterations": one.num_iterations,
            "precision": one.precision,
            "seed": one.seed,
            "epochs": self._epochs,
            "iterations": self._iterations,
            "kills": self._kills,
            "returned": None if one.comes_back is None else one.comes_back.worker,
            "generations": {name: list(map(dict, records)) for name, records in outcome.generations.items()},
            "job": str(self._folder / "job.json"),
            "executed_trace": str(executed),
        }

    def _say(self, text: str, *, bold: bool = False, colour: str | None = None) -> None:
        if not self._is_quiet:
            click.echo(click.style(text, bold=bold or None, fg=colour))


def _finite(value: float) -> float | None:
    """A number as JSON can have it."""
    return value if math.isfinite(value) else None


def _plan_text(plan: EpochPlan, source: str | None) -> str:
    gap = "" if plan.gap is None else f", gap {percent_text(plan.gap)}"
    where = "" if source is None else f"{_SOURCES.get(source, source)}: "
    return f"{duration_text(1000 * round(plan.period_us))} an iteration planned ({where}{plan.solver}{gap})"


def _move_text(move: Migration) -> str:
    where = "home" if move.worker == move.position else f"to the place of {move.position}"
    return f"{move.worker} {where}, with a copy from {move.copy_from or 'a checkpoint'}"


def _takes_over(plan: Plan) -> list[str]:
    """Lines about rerouted microbatches; none where all run at home."""
    from cli.report import takeovers
    from planner.matching import reroutes_of

    return takeovers(plan) if len(reroutes_of(plan.schedule)) else []
