"""Pictures of a report."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from benchmarks.report_tables import growth_rows, reaching
from benchmarks.view import View, names

_STYLES = ("-", "--", ":", "-.")
_LEAST_GAP = 1e-5
"""Gaps below are drawn here: zero has no place on a logarithmic axis."""

_LEAST_S = 1e-4
_LEAST_INSTANCES = 4


def plots(view: View) -> dict[str, bytes]:
    """PNG files by name; only those that there are rows for."""
    drawn = {"gaps.png": _gaps(view), "time-to-gap.png": _time_to_gap(view), "growth.png": _growth(view)}
    return {name: data for name, data in drawn.items() if data is not None}


def _gaps(view: View) -> bytes | None:
    """Share of a suite's instances that each solver brings within a gap."""
    suites = [name for name in view.suites if len(names(view.of(name), "instance")) >= _LEAST_INSTANCES]
    if not suites:
        return None
    figure = _figure(len(suites))
    for axes, suite in zip(_axes(figure, len(suites)), suites, strict=True):
        rows = view.longest(suite)
        shown = [name for name in names(rows, "solver") if not name.startswith("rule:")]
        for number, solver in enumerate(shown):
            mine = [row for row in rows if row.solver == solver]
            gaps = sorted(max(gap, _LEAST_GAP) for gap in view.gaps(mine))
            if gaps:
                _stairs(axes, gaps, len(mine), number, solver)
        axes.set_xscale("log")
        axes.set_xlabel("gap to the best bound")
        axes.set_ylabel("share of instances")
        axes.set_ylim(0, 1.02)
        axes.set_title(suite)
        axes.legend(fontsize="xx-small")
    return _png(figure)


def _time_to_gap(view: View) -> bytes | None:
    """Share of instances that come within a gap, by time."""
    series = list(dict.fromkeys((row.suite, row.solver, row.target_gap) for row in view.timed))
    if not series:
        return None
    figure = _figure(1)
    (axes,) = _axes(figure, 1)
    for number, (suite, solver, target) in enumerate(series):
        mine = [row for row in view.timed if (row.suite, row.solver, row.target_gap) == (suite, solver, target)]
        times = sorted(max(row.solve_s, _LEAST_S) for row in reaching(view, mine))
        if times:
            _stairs(axes, times, len(mine), number, f"{suite}: {solver} to {100 * target:g} %")
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("share of instances")
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize="x-small")
    return _png(figure)


def _growth(view: View) -> bytes | None:
    """Time and memory by number of operations."""
    found = {solver: rows for solver, rows in growth_rows(view).items() if len(rows) > 1}
    if not found:
        return None
    figure = _figure(2)
    times, memory = _axes(figure, 2)
    for solver, rows in found.items():
        sizes = [row.operations for row in rows]
        times.loglog(sizes, [max(row.solve_cpu_s, _LEAST_S) for row in rows], marker="o", label=f"{solver}: solve")
        times.loglog(sizes, [max(row.check_s, _LEAST_S) for row in rows], marker="x", linestyle="--", label="check")
        for peak, style in (("solve_peak_bytes", "o"), ("check_peak_bytes", "x")):
            points = [
                (row.operations, max(0, getattr(row, peak) - row.base_bytes) / row.operations)
                for row in rows
                if getattr(row, peak) is not None and row.base_bytes is not None
            ]
            label = f"{solver}: {peak.partition('_')[0]}"
            memory.semilogx(*zip(*points, strict=True), marker=style, label=label) if points else None
    last = max((rows for rows in found.values()), key=lambda rows: rows[-1].operations)[-1]
    first = min(row.operations for rows in found.values() for row in rows)
    linear = [last.solve_cpu_s * first / last.operations, last.solve_cpu_s]
    times.loglog([first, last.operations], linear, color="grey", linewidth=0.8, label="in proportion")
    times.set_ylabel("seconds (solve: CPU)")
    memory.set_ylabel("bytes an operation")
    memory.set_ylim(bottom=0)
    for axes in (times, memory):
        axes.set_xlabel("operations")
        axes.legend(fontsize="x-small")
    return _png(figure)


def _stairs(axes: Any, values: Sequence[float], total: int, number: int, label: str) -> None:
    shares = [(place + 1) / total for place in range(len(values))]
    axes.step(values, shares, where="post", label=label, linestyle=_STYLES[number // 10 % len(_STYLES)])


def _figure(panels: int) -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415 - only a picture needs it

    columns = min(panels, 2)
    return Figure(figsize=(6.5 * columns, 4.5 * -(-panels // columns)), layout="constrained")


def _axes(figure: Any, panels: int) -> list[Any]:
    columns = min(panels, 2)
    return [figure.add_subplot(-(-panels // columns), columns, number + 1) for number in range(panels)]


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    # Without the version of the library the same rows give the same file.
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()
