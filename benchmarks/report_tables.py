"""Sections of a report: each turns rows into Markdown, or into nothing where there is none to tell of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.best_known import StoredSuite, read_stored
from benchmarks.cluster import WHOLE_COMMAND
from benchmarks.compare import mean_ratio
from benchmarks.row import UNTRIED, Row
from benchmarks.view import View, by_instance, mean_period, median_of, names

OURS = "portfolio"
TECHNIQUES = (
    ("naive", "1F1B, microbatches of failed workers behind their peers' own"),
    ("round_robin", "fixed turns in 1F1B's order, memory not looked at"),
    ("reroute", "rerouting into bubbles"),
    ("reroute_split", "+ split backwards"),
    (OURS, "+ staggered optimizer steps: ours"),
)
"""What techniques are switched on one after the other, and what that is."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("|" + "|".join(line) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines)


def measured(view: View) -> str:
    """With what the rows were measured."""
    sources = {json.dumps(row.source, sort_keys=True): row for row in view.rows}
    lines = [f"{len(view.rows)} rows; seeds {', '.join(map(str, sorted({row.seed for row in view.rows})))}."]
    for row in sources.values():
        versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in row.versions.items())
        machine = ", ".join(f"{name} {value}" for name, value in row.machine.items())
        changed = f" with changes {row.changes}" if row.changes else ""
        lines.append(f"Commit {row.commit or 'unknown'}{changed}; {machine}; {versions}.")
    forced = [row for row in view.rows if row.forced]
    if forced:
        what = ", ".join(sorted({name for row in forced for name in row.forced}))
        lines.append(f"**{len(forced)} rows were added by force to rows of another {what}.**")
    failures = [row for row in view.rows if row.is_failure]
    lines.append(
        "Every plan was validated, replayed to its period and proved free of deadlock."
        if not failures
        else f"**{len(failures)} rows failed:** "
        + "; ".join(f"{row.suite}/{row.instance}, {row.solver}: {row.status}, {row.detail}" for row in failures[:20])
    )
    contradicted = [row for row in view.rows if view.is_contradicted(row)]
    if contradicted:
        lines.append(
            f"**{len(contradicted)} rows are below a bound that a row of the same instance claims, so one of the two is wrong:** "
            + "; ".join(f"{row.suite}/{row.instance}, {row.solver}" for row in contradicted[:20])
        )
    lines.append(_clocks(view.rows))
    threads = sorted({row.workers for row in view.rows})
    if threads != [1]:
        lines.append(f"Each search had {' or '.join(map(str, threads))} threads.")
    load = max(row.load for row in view.rows)
    lines.append(f"Highest load of the machine: {load:g}.")
    return "\n\n".join(lines)


def _clocks(rows: Sequence[Row]) -> str:
    """What deadlines count, and whose plans come again with the same seed."""
    by_wall = names((row for row in rows if row.clock == "wall"), "solver")
    if not any(row.clock == "work" for row in rows):
        return "Deadlines are seconds of the wall clock." if by_wall else "No deadline was looked at."
    told = "Deadlines count work, so that the same seeds give the same plans"
    return f"{told}, but for those of {', '.join(by_wall)}: seconds of the wall clock." if by_wall else f"{told}."


def summaries(view: View, *, of_rules: bool = False) -> str:
    """For each suite and solver: plans, proofs, gaps and times; of the single rules, or of everything else."""
    rows = []
    for suite in view.suites:
        of = [row for row in view.of(suite) if row.solver.startswith("rule:") is of_rules]
        for solver, deadline in dict.fromkeys((row.solver, row.deadline_s) for row in of):
            mine = [row for row in of if (row.solver, row.deadline_s) == (solver, deadline)]
            tried = [row for row in mine if row.status not in UNTRIED]
            gaps, times = view.gaps(tried), [row.solve_s for row in tried]
            rows.append(
                [
                    suite,
                    solver,
                    f"{deadline:g}",
                    str(len(mine)),
                    str(len(gaps)),
                    str(sum(view.is_proved(row) for row in tried)),
                    _percent(fmean(gaps) if gaps else None),
                    _percent(max(gaps, default=None)),
                    f"{median_of(times):.2f}" if tried else "-",
                    f"{max(times):.2f}" if tried else "-",
                    ", ".join(dict.fromkeys(row.repeats for row in tried)) or "-",
                    _left_out(mine),
                ]
            )
    head = "suite solver deadline rows plans optimal mean-gap worst-gap median-s slowest-s same-again without".split()  # noqa: SIM905
    return table([name.replace("-", " ") for name in head], rows) if rows else ""


def _left_out(rows: Sequence[Row]) -> str:
    """How many rows have no plan, by why."""
    without = [row.status.replace("_", " ") for row in rows if row.checked_period_ns is None]
    return ", ".join(f"{without.count(status)} {status}" for status in dict.fromkeys(without))


def gap_table(view: View, suite: str) -> str:
    """Gap of every solver on every instance of a suite; of the single rules the best."""
    rows = view.longest(suite)
    solvers = [name for name in names(rows, "solver") if not name.startswith("rule:")]
    given = {row.solver: row.deadline_s for row in rows}
    differ = len(set(given.values())) > 1
    with_rules = any(row.solver.startswith("rule:") for row in rows)
    lines = []
    for (_, instance), mine in by_instance(rows).items():
        cells = [_gap_cell(view, [row for row in mine if row.solver == solver]) for solver in solvers]
        if with_rules:
            best = min(view.gaps(row for row in mine if row.solver.startswith("rule:")), default=None)
            cells.append(_percent(best))
        lines.append([instance, str(mine[0].operations), *cells])
    heads = [f"{name}, {given[name]:g} s" if differ else name for name in solvers]
    head = ["instance", "operations", *heads, *(["best single rule"] if with_rules else [])]
    return table(head, lines)


def _gap_cell(view: View, rows: Sequence[Row]) -> str:
    gaps = view.gaps(rows)
    if gaps:
        return _percent(fmean(gaps))
    return {"not_applicable": "n/a", "not_installed": "n/i"}.get(rows[0].status, "-") if rows else ""


def techniques(view: View) -> str:
    """What each technique is worth: periods over ours with the longest deadline that all had, where all have one."""
    lines = []
    for suite in view.suites:
        grouped = list(by_instance(view.longest_common(suite, [name for name, _ in TECHNIQUES])).values())
        periods = [[mean_period(mine, name) for name, _ in TECHNIQUES] for mine in grouped]
        whole = [[p for p in found if p is not None] for found in periods if None not in found]
        for number, (name, what) in enumerate(TECHNIQUES if whole else ()):
            ratios = [found[number] / found[-1] for found in whole]
            lines.append([suite, str(len(whole)), f"`{name}`", what, f"{mean_ratio(ratios):.3f}", f"{max(ratios):.3f}"])
    if not lines:
        return ""
    return table(["suite", "instances", "", "what it is", "mean period over ours", "largest"], lines)


def integer_program(view: View) -> str:
    """Ours against the integer program, on the same instances with the same deadline.

    Times are compared where both ended by themselves: what crashed or was killed has none.
    """
    lines, ratios, worse = [], [], 0
    backends = [name for name in names(view.full, "solver") if name.startswith("milp_")]
    for ours in view.full:
        if ours.solver != OURS or ours.status in UNTRIED:
            continue
        same = (ours.suite, ours.instance, ours.seed, ours.deadline_s)
        mine = [row for row in view.full if (row.suite, row.instance, row.seed, row.deadline_s) == same]
        tried = {row.solver: row for row in mine if row.solver in backends and row.status not in UNTRIED}
        if not tried:
            continue
        cells = []
        for name in backends:
            row = tried.get(name)
            if row is None:
                cells.append("n/a")
                continue
            cell = _found(row)
            if not row.is_failure and not ours.is_failure:
                ratio = max(row.solve_s, 1e-4) / max(ours.solve_s, 1e-4)
                ratios.append(ratio)
                cell = f"{cell}, x{_times(ratio)}"
            cells.append(cell)
            worse += _period(row) < _period(ours)
        lines.append([ours.suite, ours.instance, _found(ours), *cells])
    if not lines:
        return ""
    verdict = (
        "Our period is the same or better everywhere."
        if not worse
        else f"**The integer program is better in {worse} cases.**"
    )
    told = (
        f"It takes {_times(mean_ratio(ratios))} times as long in the geometric mean of {len(ratios)} cases, "
        f"{_times(min(ratios))} to {_times(max(ratios))} times, the start of its process included. "
        if ratios
        else ""
    )
    return f"{verdict} {told}Periods in us.\n\n{table(['suite', 'instance', 'ours', *backends], lines)}"


def _found(row: Row) -> str:
    """A row's period and how long it took, or what became of it."""
    if row.is_failure:
        return row.status
    return f"{'no plan' if row.period_ns is None else _us(row.period_ns)} in {row.solve_s:.2f} s"


def _period(row: Row) -> float:
    """A row's period; without a plan that stood its checks longer than any."""
    return math.inf if row.checked_period_ns is None else row.checked_period_ns


def _times(ratio: float) -> str:
    """A ratio of times: a digit behind the point where it is small, two below 1."""
    return f"{ratio:.2f}" if ratio < 1 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def time_to_gap(view: View) -> str:
    """How long it takes until half, nine tenths and all of the rows are within a gap; nothing where fewer get there."""
    lines = []
    for suite, solver, target in dict.fromkeys((row.suite, row.solver, row.target_gap) for row in view.timed):
        mine = [row for row in view.timed if (row.suite, row.solver, row.target_gap) == (suite, solver, target)]
        reached = reaching(view, mine)
        times = sorted(row.solve_s for row in reached)
        lines.append(
            [
                suite,
                solver,
                _percent(target),
                f"{len(reached)} of {len(mine)}",
                *(_time_for(times, share * len(mine)) for share in (0.5, 0.9, 1.0)),
            ]
        )
    return table(["suite", "solver", "gap", "reached", "half s", "90 % s", "all s"], lines) if lines else ""


def _time_for(times: Sequence[float], rows: float) -> str:
    """When that many rows are there, of the ascending times of those that get there at all."""
    number = math.ceil(rows - 1e-9)
    return f"{times[number - 1]:.3f}" if number <= len(times) else "-"


def reaching(view: View, rows: Iterable[Row]) -> list[Row]:
    """Rows that came within their target gap."""
    return [row for row in rows if (gap := view.gap(row)) is not None and gap <= row.target_gap + 1e-12]


def growth_rows(view: View) -> dict[str, list[Row]]:
    """Rows of the suite ``growth`` with a plan, by solver, smallest first."""
    found: dict[str, list[Row]] = {}
    for row in sorted(view.of("growth"), key=lambda row: row.operations):
        if row.checked_period_ns is not None:
            found.setdefault(row.solver, []).append(row)
    return found


def growth(view: View) -> str:
    """Time and memory by number of operations."""
    lines, told = [], []
    for solver, rows in growth_rows(view).items():
        for row in rows:
            lines.append(
                [
                    solver,
                    row.instance,
                    f"{row.operations:,}",
                    f"{row.solve_s:.2f}",
                    f"{row.solve_cpu_s:.2f}",
                    f"{row.solve_cpu_s / row.operations * 1e6:.2f}",
                    _bytes_an_operation(row, row.solve_peak_bytes),
                    f"{row.check_s:.2f}",
                    _bytes_an_operation(row, row.check_peak_bytes),
                    _percent(view.gap(row)),
                ]
            )
        exponent = growth_exponent(rows)
        if exponent is not None:
            told.append(
                f"`{solver}`: CPU time grows as operations to the power of {exponent:.2f} from {rows[0].operations:,} to "
                f"{rows[-1].operations:,}."
            )
    if not lines:
        return ""
    head = ["solver", "instance", "operations", "solve s", "CPU s", "us an operation", "bytes an operation", "check s"]
    return "\n\n".join([*told, table([*head, "bytes an operation, checking", "gap"], lines)])


def growth_exponent(rows: Sequence[Row]) -> float | None:
    """Slope of the CPU time over the operations, both in logarithms, by least squares; ``None`` for fewer than two sizes.

    CPU time, since other work on the machine does not lengthen it much; a worker solves with one thread.

    Examples
    --------
    Ten times the time for ten times the operations are 1.
    """
    points = [(math.log(row.operations), math.log(max(row.solve_cpu_s, 1e-6))) for row in rows]
    if len({x for x, _ in points}) < 2:
        return None
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def _bytes_an_operation(row: Row, peak: int | None) -> str:
    if peak is None or row.base_bytes is None:
        return "-"
    return f"{max(0, peak - row.base_bytes) / row.operations:.0f}"


def whole_commands(view: View) -> str:
    """``replan plan`` and ``replan validate`` as commands."""
    rows = [row for row in view.full if row.solver == WHOLE_COMMAND and row.period_ns is not None]
    lines = [
        [
            row.instance,
            f"{row.operations:,}",
            _percent(view.gap(row)),
            f"{row.solve_s:.2f}",
            f"{row.check_s:.2f}",
            f"{max(row.solve_peak_bytes or 0, row.check_peak_bytes or 0) / 2**30:.2f} GiB",
        ]
        for row in rows
    ]
    return table(["instance", "operations", "gap", "plan s", "validate s", "peak"], lines) if lines else ""


def better_than_known(view: View) -> str:
    """Periods and bounds better than the stored best, and whether published periods are met."""
    stored = read_stored()
    lines = list(_better(view, stored))
    published = [
        (best.published_ns, min(periods))
        for (suite, instance), mine in by_instance(view.full).items()
        if suite in stored and (best := stored[suite].instances.get(instance)) is not None and best.published_ns
        if (periods := [p for row in mine if row.solver == OURS and (p := row.checked_period_ns) is not None])
    ]
    told = []
    if published:
        met = sum(ours <= theirs for theirs, ours in published)
        below = sum(ours < theirs for theirs, ours in published)
        told.append(
            f"Of {len(published)} instances with a period that others published, ours is at most that in {met}, "
            f"and less in {below}."
        )
    if lines:
        told.append(table(["suite", "instance", "", "stored", "now", "by"], lines))
    return "\n\n".join(told)


def _better(view: View, known: Mapping[str, StoredSuite]) -> Iterator[list[str]]:
    for (suite, instance), mine in by_instance(view.rows).items():
        best = known[suite].instances.get(instance) if suite in known else None
        whole = [row for row in mine if not row.leaves_out and row.checked_period_ns is not None]
        if best is None or not whole or best.sha256 != whole[0].instance_sha256:
            continue
        found = min(whole, key=lambda row: row.period_ns or 0)
        if best.period_ns is not None and found.period_ns is not None and found.period_ns < best.period_ns:
            yield [suite, instance, "period", _us(best.period_ns), _us(found.period_ns), found.solver]
        proved = max(whole, key=lambda row: row.bound_ns)
        if proved.bound_ns > best.bound_ns:
            yield [suite, instance, "bound", _us(best.bound_ns), _us(proved.bound_ns), proved.solver]


def _us(value_ns: int) -> str:
    return f"{value_ns / 1000:.3f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3f} %"
