"""What Zero Bubble's own scheduler reached on its measured rows, from a file beside the project, and ours beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.errors import BenchmarkFileError
from benchmarks.report_tables import OURS, table
from benchmarks.row import Row
from benchmarks.view import View
from benchmarks.zero_bubble import zero_bubble_rows
from planner.formats.documents import parse_document, read_text

FILE = "zb_reference.json"

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
"""Where that file lies beside a checkout, if it does."""

_KINDS = {("zb", 1): "mem1", ("zb", 2): "mem2", ("zbv", 1): "v"}
"""Ends of our instances' names by scheduler and multiple of 1F1B's memory."""


def read_reference(folder: Path) -> Mapping[str, int]:
    """Its longest stage time by the name of our instance, in nanoseconds.

    Raises
    ------
    BenchmarkFileError
        If the file cannot be read, or has another form.
    """
    text = read_text(folder / FILE, error=BenchmarkFileError)
    document = parse_document(text, format="json", error=BenchmarkFileError)
    found = {}
    try:
        for row in document["rows"]:
            model, memory = row["source"].removeprefix("paper "), row["memory_limit_over_1f1b"]
            kind = _KINDS.get((row["scheduler"], memory))
            if kind is not None and model != row["source"]:
                found[f"zb-{model.lower()}-m{row['num_microbatches']}-{kind}"] = round(row["longest_stage_time"] * 1e6)
    except (KeyError, TypeError, AttributeError) as error:
        raise BenchmarkFileError(f"{FILE} has another form than expected: {error!r}") from error
    return found


def zero_bubble(view: View, data: Path | None) -> str:
    """Ours beside the published bubble rates and, where the file is there, beside Zero Bubble's own scheduler."""
    rows = {row.instance: row for row in view.of("zero-bubble") if row.solver == OURS and row.period_ns is not None}
    if not rows:
        return ""
    theirs = read_reference(data) if data is not None and (data / FILE).exists() else {}
    lines = []
    for published in zero_bubble_rows():
        row = rows.get(published.name)
        if row is None or row.period_ns is None:
            continue
        rate = 1 - published.work_ns / row.period_ns
        own = theirs.get(published.name)
        lines.append(
            [
                row.instance,
                f"{row.period_ns / 1e6:.3f}",
                f"{100 * (view.gap(row) or 0):.3f} %",
                f"{rate:.4f}",
                "" if published.published_rate is None else f"{published.published_rate:.4f}",
                *(["" if own is None else f"{own / 1e6:.3f}", "" if own is None else f"{row.period_ns / own:.5f}"]),
            ]
        )
    head = ["instance", "ours ms", "gap", "bubble rate", "published", "own scheduler ms", "ours / own"]
    return f"{_verdict(view, rows.values(), theirs)}\n\n{table(head, lines)}"


def _verdict(view: View, rows: Iterable[Row], theirs: Mapping[str, int]) -> str:
    """In how many rows ours is below, where the bound leaves room."""
    pairs = [(row, theirs[row.instance]) for row in rows if row.instance in theirs]
    if not pairs:
        return f"Without `{FILE}` (`--data`) the published rates alone are compared."
    told = []
    for kind, name in (("mem1", "1F1B's memory"), ("mem2", "twice that"), ("v", "1F1B's memory as a V")):
        mine = [(row, own) for row, own in pairs if row.instance.endswith(f"-{kind}")]
        if not mine:
            continue
        room = [(row, own) for row, own in mine if own > view.bounds_ns[row.suite, row.instance]]
        below = sum(row.period_ns is not None and row.period_ns < own for row, own in room)
        above = sum(row.period_ns is not None and row.period_ns > own for row, own in mine)
        told.append(
            f"At {name} the bound leaves room below Zero Bubble's own scheduler in {len(room)} of {len(mine)} rows: ours is "
            f"below it in {below} of those, and above it in {above} rows."
        )
    return " ".join(told)
