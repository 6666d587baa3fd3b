"""``replan demo train``: real training through real kills on this machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.errors import MissingExtraError, TrainingError
from cli.parameters import Duration, json_option
from planner.errors import InputError, OptionError

if TYPE_CHECKING:
    from replan_client.torch.demo.scenario import Scenario

_EXTRA = "'replan-client[torch]'"


@click.group()
def demo() -> None:
    """Show RePlan at work on this machine."""


@demo.command(
    short_help="Train a small GPT through kills, and compare with undisturbed training.",
    epilog="\b\nreplan demo train --out run/\nreplan demo train --quick --json",
)
@click.option("--iterations", type=click.IntRange(1, 1000), help="Iterations.  [16; with --quick 6]")
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of all that is random."
)
@click.option(
    "--precision",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Of parameters: equal means within 1e-12 or 1e-5.",
)
@click.option("--quick", is_flag=True, help="2 x 2 workers and one kill, instead of 3 x 4, two and a return.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Leave job file, traces and logs here.  [a new folder for temporary files]",
)
@click.option(
    "--timeout", "timeout_s", type=Duration(), default="10m", show_default=True, help="When to give up: 90s, 10m."
)
@click.option(
    "--reference-seed",
    type=click.IntRange(0, 2**31 - 1),
    help="Seed of dropout in undisturbed training. Another one than --seed shows that a difference is found.  [as --seed]",
)
@json_option
def train(
    iterations: int | None,
    seed: int,
    precision: str,
    quick: bool,
    out: Path | None,
    timeout_s: float,
    reference_seed: int | None,
    as_json: bool,
) -> None:
    """Train a small GPT with one process a worker and a service that plans, kill workers in mid-iteration, and prove the result.

    Ends with status 0 only where parameters and losses are those of the same training without failures in one process.
    """
    _require_extra()
    given = {} if iterations is None else {"num_iterations": iterations}
    scenario = _scenario(given, quick=quick, precision=precision, seed=seed, reference_seed=reference_seed)
    with _folder(out) as folder:
        _run(scenario, folder, timeout_s=timeout_s, as_json=as_json)


def _require_extra() -> None:
    """Before anything is begun."""
    for name in ("replan_client", "torch", "numpy"):
        if find_spec(name) is None:
            distribution = "replan-client" if name == "replan_client" else name
            raise MissingExtraError(
                f"{distribution} is not installed, and the demonstration trains with it",
                hint=f"pip install {_EXTRA}; in a checkout of RePlan: pip install -e 'client[torch]'",
            )


def _scenario(given: dict[str, int], *, quick: bool, precision: str, seed: int, reference_seed: int | None) -> Scenario:
    from replan_client.errors import ArgumentError
    from replan_client.torch.demo.scenario import Precision, full_scenario, quick_scenario

    found: Precision = "float32" if precision == "float32" else "float64"
    make = quick_scenario if quick else full_scenario
    try:
        return make(**given, precision=found, seed=seed, reference_seed=reference_seed)
    except ArgumentError as error:
        raise OptionError(error.message) from error


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder for what is left; one of our own goes again where nothing came of it."""
    if out is None:
        from shutil import rmtree

        folder = Path(tempfile.mkdtemp(prefix="replan-demo-"))
        try:
            yield folder
        except BaseException as error:
            # What was logged may tell why it failed; who stops it wants nothing.
            if not isinstance(error, Exception):
                rmtree(folder, ignore_errors=True)
            raise
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {out}: {error.strerror}") from error
    yield out


def _run(scenario: Scenario, folder: Path, *, timeout_s: float, as_json: bool) -> None:
    from replan_client.errors import ClientError
    from replan_client.torch.demo.run import run_demo

    from cli.demo_record import Recorder

    recorder = Recorder(scenario, folder, is_quiet=as_json)
    recorder.begin()
    try:
        with tempfile.TemporaryDirectory(prefix="replan-demo-service-") as scratch:
            outcome = run_demo(
                scenario,
                recorder.happened,
                serve=[sys.executable, "-P", "-m", "cli.main", "serve"],
                scratch=Path(scratch),
                logs=folder,
                limit_s=timeout_s,
                preload=["cli.main"],
            )
        recorder.end(outcome)
        outcome.verdict.require_equal()
    except ClientError as error:
        logs = f"{folder / 'workers.log'} and {folder / 'service.log'} may say more"
        hint = logs if error.hint is None else f"{error.hint}\n{logs}"
        raise TrainingError(error.message, code=error.code, hint=hint) from error
