"""Values on the command line: durations, percentages, workers and lists."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from planner.errors import InputError, ScheduleFormatError
from planner.operation import Worker, parse_worker

_Command = TypeVar("_Command", bound=Callable[..., Any])

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|min|h|)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class Duration(click.ParamType[float]):
    """Seconds: ``2s``, ``500ms``, ``1m``; a plain number counts seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn the text into seconds above 0."""
        match = _DURATION.fullmatch(str(value).strip())
        seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        if not 0 < seconds <= 86_400:
            self.fail(f"{value!r} is not a duration; expected 2s, 500ms or 1m, above 0 and at most 24 h", param, ctx)
        return seconds


class Share(click.ParamType[float]):
    """A share of one: ``1%`` or ``0.01``; at least 0 and at most 1."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn the text into a number from 0 to 1."""
        match = _SHARE.fullmatch(str(value).strip())
        share = -1.0 if match is None else float(match[1]) / (100 if match[2] else 1)
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is not a share; expected 1% or 0.01, at least 0 and at most 100%", param, ctx)
        return share


class FiniteRange(click.FloatRange):
    """A number in a range; click's own takes ``nan`` into every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn the text into a number in the range."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class WorkerParameter(click.ParamType[Worker]):
    """A worker: ``pipeline/slot``, such as ``3/5``."""

    name = "pipeline/slot"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Worker:
        """Turn the text into a worker; whether it exists is for the plan to say."""
        if isinstance(value, Worker):
            return value
        try:
            return parse_worker(str(value).removeprefix("worker:"))
        except ScheduleFormatError as error:
            self.fail(error.message, param, ctx)


class WorkerList(click.ParamType[tuple[Worker, ...]]):
    """Workers separated by commas: ``0/2,1/2``."""

    name = "workers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Worker, ...]:
        """Turn the text into workers, in the order given."""
        return tuple(WorkerParameter().convert(part, param, ctx) for part in str(value).split(","))


class NumberList(click.ParamType[tuple[int, ...]]):
    """Numbers and ranges separated by commas: ``0,4-7``."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Turn the text into ascending numbers, each once."""
        found: set[int] = set()
        for part in str(value).split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                self.fail(f"{value!r} is not a list of numbers; expected 0,4-7", param, ctx)
            first, last = int(match[1]), int(match[2] or match[1])
            if not 0 <= last - first < 1_000_000:
                self.fail(f"{part!r} is not a range; expected first-last", param, ctx)
            found.update(range(first, last + 1))
        return tuple(sorted(found))


def json_option(command: _Command) -> _Command:
    """Add ``--json`` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")(command)


def failure_options(command: _Command) -> _Command:
    """Add ``JOB``, ``--fail`` and ``--degrade`` to a command."""
    for option in (
        click.option(
            "--degrade",
            multiple=True,
            metavar="TARGET=FACTOR",
            help="Something slow and its speed, above 0 and at most 1: worker:1/2=0.7. May be repeated.",
        ),
        click.option(
            "--fail",
            multiple=True,
            metavar="TARGET",
            help="What is down: a hostlist of nodes (gpu[0007,0100-0103]), rank:17, or worker:1/2 (pipeline/slot). "
            "May be repeated.",
        ),
        click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


def plan_argument(command: _Command) -> _Command:
    """Add the argument ``PLAN``, a plan file."""
    return click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))(command)


def schedule_file_options(command: _Command) -> _Command:
    """Add ``--job`` and ``--microbatches`` to a command that takes a PyTorch schedule file in a plan's place."""
    for option in (
        click.option(
            "--microbatches",
            type=click.IntRange(1, 1_000_000),
            metavar="N",
            help="With --job: microbatches that the file is to hold; default: as many as each pipeline of JOB has.",
        ),
        click.option(
            "--job",
            "job_path",
            metavar="JOB",
            type=click.Path(path_type=Path),
            help="PLAN is a PyTorch schedule file (CSV): judge it by the costs of this job file.",
        ),
    ):
        command = option(command)
    return command


def require_writable(path: Path | None) -> None:
    """Check before any work that a file can be written; ``None`` passes.

    Raises
    ------
    InputError
        If its folder is missing, or it is a folder itself.
    """
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
