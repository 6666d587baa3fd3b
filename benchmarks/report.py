"""A Markdown report of a file of results, with plots; the same rows give the same report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.best_known import read_stored
from benchmarks.contenders import contenders
from benchmarks.plots import plots
from benchmarks.report_tables import (
    better_than_known,
    gap_table,
    growth,
    integer_program,
    measured,
    summaries,
    techniques,
    time_to_gap,
    whole_commands,
)
from benchmarks.row import Row
from benchmarks.suites import SUITES
from benchmarks.view import View
from benchmarks.zb_reference import zero_bubble
from planner.errors import InputError
from planner.formats.whole_file import write_whole

REPORT = "report.md"


def write_report(rows: Sequence[Row], folder: Path, *, data: Path | None = None) -> tuple[Path, ...]:
    """Write ``report.md`` and its plots.

    Parameters
    ----------
    rows
        At least one.
    folder
        Where; made where it is missing.
    data
        Folder with what Zero Bubble's own scheduler reached; ``None`` for none.

    Returns
    -------
    tuple of Path
        The files.

    Raises
    ------
    InputError
        If there are no rows, or the folder cannot be written to.
    """
    if not rows:
        raise InputError("the file has no rows to report")
    view = View(rows=in_order(rows))
    pictures = plots(view)
    text = report_text(view, tuple(pictures), data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from error
    write_whole(folder / REPORT, text.encode("utf-8"))
    for name, picture in pictures.items():
        write_whole(folder / name, picture)
    return (folder / REPORT, *(folder / name for name in pictures))


def in_order(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows by suite, instance and contender as these are listed, whatever came first; unknown ones by name, at the end."""
    suites = {name: place for place, name in enumerate(SUITES)}
    instances = {
        (name, instance): place
        for name, suite in read_stored().items()
        for place, instance in enumerate(suite.instances)
    }
    solvers = {name: place for place, name in enumerate(contenders())}

    def place(row: Row) -> tuple[object, ...]:
        where = (row.suite, row.instance)
        return (
            suites.get(row.suite, len(suites)),
            instances.get(where, len(instances)),
            solvers.get(row.solver, len(solvers)),
            row.key,
        )

    return tuple(sorted(rows, key=place))


def report_text(view: View, pictures: Sequence[str], data: Path | None = None) -> str:
    """The report; sections for which there are no rows are left out.

    Parameters
    ----------
    view
        The rows.
    pictures
        Names of the plots that stand beside it.
    data
        As :func:`write_report` takes it.
    """
    introduction = (
        "Gap is period over the best lower bound that any row of the instance knows, less one. `n/a`: the solver does not take "
        "the problem; `n/i`: it is not installed; `-`: no plan by the deadline. What leaves memory out can be below the bound."
    )
    sections = [
        ("What was measured", measured(view)),
        ("Solvers", _illustrated(summaries(view), "gaps.png", pictures)),
        ("Single rules", summaries(view, of_rules=True)),
        ("Techniques, one at a time", techniques(view)),
        ("Against the integer program", integer_program(view)),
        ("Time to a gap", _illustrated(time_to_gap(view), "time-to-gap.png", pictures)),
        ("Growth", _illustrated(growth(view), "growth.png", pictures)),
        ("Whole commands", whole_commands(view)),
        ("Zero Bubble", zero_bubble(view, data)),
        ("Against what was known", better_than_known(view)),
        *((f"Gaps: {suite}", gap_table(view, suite)) for suite in view.suites),
    ]
    told = [f"## {title}\n\n{text}" for title, text in sections if text]
    return "\n\n".join(["# Benchmark report", introduction, *told]) + "\n"


def _illustrated(text: str, picture: str, pictures: Sequence[str]) -> str:
    return f"{text}\n\n![{picture.removesuffix('.png')}]({picture})" if text and picture in pictures else text
