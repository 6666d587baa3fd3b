"""Gantt charts of a plan with matplotlib, as SVG or PNG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cli.output import duration_text, percent_text
from planner.formats.whole_file import write_whole
from planner.operation import Kind, Worker
from planner.plan import Plan, PlanStatus
from planner.timeline import Bar, timeline_of

_COLOURS = {Kind.F: "#56B4E9", Kind.I: "#E69F00", Kind.W: "#009E73", Kind.B: "#CC79A7"}
"""Okabe and Ito's palette, told apart with every kind of colour vision."""

_NAMES = {Kind.F: "F forward", Kind.I: "I input gradient", Kind.W: "W weight gradient", Kind.B: "B fused backward"}
_BAR = 0.8
_MOST_LABELS = 2500
_WIDTH_IN = 15.0
_DPI = 110


def write_gantt(plan: Plan, workers: Sequence[Worker], path: Path, *, kind: Literal["svg", "png"] | str) -> None:
    """Draw workers' operations over one iteration and write the picture.

    Parameters
    ----------
    plan
        The plan.
    workers
        Workers to draw, from top to bottom; down ones are drawn as such.
    path
        Where to write; the file appears whole or not at all.
    kind
        ``"svg"`` or ``"png"``.
    """
    # The same plan gives the same file: no date, and ids that do not change from run to run.
    with (
        matplotlib.rc_context({"svg.hashsalt": plan.plan_id, "svg.fonttype": "none", "hatch.linewidth": 0.6}),
        warnings.catch_warnings(),
    ):
        # A job's name may hold letters that the font does not have: a PNG shows boxes for them, an SVG the reader's font.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = draw_gantt(plan, workers)
        data = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(data, format=kind, dpi=_DPI, metadata=metadata)
    write_whole(path, data.getvalue())


def draw_gantt(plan: Plan, workers: Sequence[Worker]) -> Figure:
    """The chart as a matplotlib figure."""
    height = 1.7 + 0.3 * max(len(workers), 3)
    figure = Figure(figsize=(_WIDTH_IN, height), layout="constrained")
    axes = figure.add_subplot()
    unit, size = _unit(plan.period_ns)
    timeline = timeline_of(plan)
    begin, end = 0.0, int(timeline.end_ns.max()) / size
    drawn = [list(timeline.bars(worker)) for worker in workers]
    with_labels = sum(map(len, drawn)) <= _MOST_LABELS
    last = end
    for row, (worker, bars) in enumerate(zip(workers, drawn, strict=True)):
        if worker in plan.problem.dead:
            axes.broken_barh([(begin, end - begin)], _band(row), facecolors="#E8E8E8", edgecolors="#B0B0B0", hatch="xx")
            axes.text((begin + end) / 2, row, "down", ha="center", va="center", fontsize=8, color="#606060")
            continue
        _draw_bars(axes, row, bars, size)
        sync = timeline.syncs[worker.slot]
        if sync.duration_ns:
            axes.broken_barh([(sync.start_ns / size, sync.duration_ns / size)], _band(row), facecolors="#999999")
            last = max(last, (sync.start_ns + sync.duration_ns) / size)
        if with_labels:
            _label_bars(axes, row, bars, size, (last - begin) / (_WIDTH_IN * 14))
    _frame(axes, plan, workers, unit, (begin, last))
    used = sorted({bar.operation.kind for bars in drawn for bar in bars})
    handles = [Patch(facecolor=_COLOURS[kind], label=_NAMES[kind]) for kind in used]
    handles.append(Patch(facecolor="white", edgecolor="black", hatch="////", label="rerouted from another pipeline"))
    if any(sync.duration_ns for sync in timeline.syncs):
        handles.append(Patch(facecolor="#999999", label="all-reduce and optimizer"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    return figure


def _draw_bars(axes: Any, row: int, bars: list[Bar], size: int) -> None:
    groups: dict[tuple[Kind, bool], list[tuple[float, float]]] = {}
    for bar in bars:
        span = (bar.start_ns / size, (bar.end_ns - bar.start_ns) / size)
        groups.setdefault((bar.operation.kind, bar.rerouted), []).append(span)
    for (kind, rerouted), spans in groups.items():
        axes.broken_barh(
            spans,
            _band(row),
            facecolors=_COLOURS[kind],
            edgecolors="black" if rerouted else "white",
            linewidth=0.5,
            hatch="////" if rerouted else None,
        )


def _label_bars(axes: Any, row: int, bars: list[Bar], size: int, character: float) -> None:
    """Write microbatch numbers into the bars that are wide enough; ``character`` is a letter's width in data units."""
    for bar in bars:
        width = (bar.end_ns - bar.start_ns) / size
        text = f"{bar.operation.pipeline}.{bar.operation.microbatch}"
        if width < character * len(text):
            continue
        box = {"facecolor": "white", "alpha": 0.65, "edgecolor": "none", "pad": 0.6}
        axes.text(bar.start_ns / size + width / 2, row, text, ha="center", va="center", fontsize=6, bbox=box)


def _frame(axes: Any, plan: Plan, workers: Sequence[Worker], unit: str, span: tuple[float, float]) -> None:
    axes.set_ylim(len(workers) - 0.4, -0.6)
    margin = (span[1] - span[0]) * 0.005
    axes.set_xlim(span[0] - margin, span[1] + margin)
    axes.set_yticks(range(len(workers)), [str(worker) for worker in workers], fontsize=8)
    axes.set_ylabel("worker (pipeline/slot)", fontsize=9)
    axes.set_xlabel(f"time in {unit}", fontsize=9)
    for row, (above, below) in enumerate(pairwise(workers)):
        if above.pipeline != below.pipeline:
            axes.axhline(row + 0.5, color="#808080", linewidth=0.6)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    proof = "proved optimal" if plan.status is PlanStatus.OPTIMAL else _gap_text(plan)
    # Names come from outside: a dollar sign must not start a formula.
    title = (
        f"{plan.job_name}: period {duration_text(plan.period_ns)}, {proof}\nfailed: {_shortened(plan.failures_text())}"
    )
    axes.set_title(title, fontsize=10, loc="left", parse_math=False)


def _gap_text(plan: Plan) -> str:
    return "gap unknown" if plan.gap is None else f"gap {percent_text(plan.gap)} to {duration_text(plan.bound_ns)}"


def _band(row: int) -> tuple[float, float]:
    return (row - _BAR / 2, _BAR)


def _unit(period_ns: int) -> tuple[str, int]:
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if period_ns >= 10 * size:
            return unit, size
    return "ns", 1


def _shortened(text: str) -> str:
    return text if len(text) <= 150 else text[:147] + "..."
