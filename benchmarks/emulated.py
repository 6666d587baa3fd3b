"""Plans run with emulated compute: ``python -m benchmarks.emulated [--runs 3] [--iterations 10] [--json FILE]``.

Predicted against measured periods of 3 pipelines x 4 slots and 2 x 8, fault-free and with one and two failed workers. One process
a worker runs its program with the client's executor: real messages, all-reduces and orders, while operations wait as long as
they are said to take. That shows what a prediction leaves out: the executor's own time, delays of messages,
waiting for the slower of two.

Waits are long, tens of milliseconds, and processes many, so that a machine of two cores can run sixteen workers: what a
worker does besides waiting, some tenths of a millisecond an operation, is small beside its waits and rarely meets another's.
The link's and the all-reduce's times are measured first, between processes of this machine, and go into the prediction.

The client is started as a command: nothing of it, nor PyTorch, is imported here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from planner.lowering import lower
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from solver_models import portfolio
from solver_models.result import SolveOptions

CLIENT = "replan_client.torch.emulate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """What every stage costs; times in microseconds, sizes in bytes."""

    forward_us: float = 30_000
    input_grad_us: float = 32_000
    weight_grad_us: float = 22_000
    optimizer_us: float = 8_000
    input_bytes: int = 2**18
    gradient_bytes: int = 2**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cluster and who is down."""

    pipelines: int
    slots: int
    microbatches: int
    dead: tuple[Worker, ...] = ()

    @property
    def name(self) -> str:
        """Shape and failed workers."""
        failed = ", ".join(map(str, self.dead)) or "none"
        return f"{self.pipelines} x {self.slots} x {self.microbatches}, failed: {failed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A case that was run; periods in microseconds, one measured value a run."""

    case: str
    predicted_us: float
    measured_us: tuple[float, ...]

    @property
    def errors(self) -> list[float]:
        """Measured over predicted, less one, of each run."""
        return [measured / self.predicted_us - 1 for measured in self.measured_us]


def cases() -> Iterator[Case]:
    """Both shapes, each fault-free, with one and with two failures in different slots."""
    for pipelines, slots, microbatches, dead in (
        (3, 4, 6, (Worker(1, 2), Worker(0, 1))),
        (2, 8, 12, (Worker(1, 3), Worker(0, 6))),
    ):
        for count in range(3):
            yield Case(pipelines=pipelines, slots=slots, microbatches=microbatches, dead=dead[:count])


def problem_of(case: Case, lengths: Lengths, transfer_us: float, all_reduce_us: float) -> Problem:
    """Room for 1.5 times as many microbatches as slots, as tight as training is."""
    stage = Stage(
        forward_ns=round(lengths.forward_us * 1000),
        input_grad_ns=round(lengths.input_grad_us * 1000),
        weight_grad_ns=round(lengths.weight_grad_us * 1000),
        transfer_ns=round(transfer_us * 1000),
        activation_bytes=2,
        weight_grad_bytes=1,
    )
    sync_ns = round((lengths.optimizer_us + all_reduce_us) * 1000)
    return Problem(
        stages=(stage,) * case.slots,
        slots=tuple(Slot(stages=(s,), sync_ns=sync_ns, capacity_bytes=3 * case.slots) for s in range(case.slots)),
        microbatches=(case.microbatches,) * case.pipelines,
        dead=frozenset(case.dead),
    )


def run_case(case: Case, lengths: Lengths, *, runs: int, iterations: int, deadline_s: float) -> Row:
    """Measure the links, plan, and run the plan several times."""
    links = _client(
        "links",
        *("--message-bytes", str(lengths.input_bytes)),
        *("--gradient-bytes", str(lengths.gradient_bytes)),
        *("--peers", str(case.pipelines)),
    )
    problem = problem_of(case, lengths, links["transfer_us"], links["all_reduce_us"])
    found = portfolio.solve(problem, SolveOptions(deadline_s=deadline_s))
    assert found.schedule is not None
    assert found.period_ns is not None
    programs = lower(problem, found.schedule)
    document = {
        "iterations": iterations,
        "runs": runs,
        "stages": [asdict(lengths)] * case.slots,
        "programs": [programs.program(worker).to_dict() for worker in programs.workers()],
    }
    with tempfile.TemporaryDirectory(prefix="replan-emulated-") as folder:
        path = Path(folder) / "run.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        measured = _client("run", str(path))
    return Row(case=case.name, predicted_us=found.period_ns / 1000, measured_us=tuple(measured["period_us"]))


def _client(*arguments: str) -> dict[str, Any]:
    """JSON that a command of the client prints."""
    answer = subprocess.run(
        [sys.executable, "-m", CLIENT, *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=1800
    )
    printed: dict[str, Any] = json.loads(answer.stdout)
    return printed


def main() -> None:
    """Run every case and print one row each."""
    parser = argparse.ArgumentParser(description="predicted against measured periods, with emulated compute")
    parser.add_argument("--runs", type=int, default=3, help="runs of each plan (3)")
    parser.add_argument("--iterations", type=int, default=10, help="iterations of each run that count (10)")
    parser.add_argument("--deadline", type=float, default=2.0, help="seconds for each plan (2)")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    arguments = parser.parse_args()
    sys.stdout.write("| case | predicted ms | measured ms | best | median | worst |\n|---|---|---|---|---|---|\n")
    rows = []
    for case in cases():
        row = run_case(
            case, Lengths(), runs=arguments.runs, iterations=arguments.iterations, deadline_s=arguments.deadline
        )
        rows.append(row)
        measured = ", ".join(f"{period / 1000:.1f}" for period in row.measured_us)
        errors = sorted(row.errors, key=abs)
        sys.stdout.write(
            f"| {row.case} | {row.predicted_us / 1000:.1f} | {measured} | {errors[0]:+.2%} | {median(errors):+.2%} "
            f"| {errors[-1]:+.2%} |\n"
        )
        sys.stdout.flush()
    worst = max((error for row in rows for error in row.errors), key=abs)
    sys.stdout.write(
        f"\n{len(rows)} cases, {arguments.runs} runs of {arguments.iterations} iterations each; {worst:+.2%} at worst"
    )
    sys.stdout.write(f"; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the end\n")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
