"""``replan bench``: how good plans are, and how fast they come, against everything that can be run beside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.cpus import num_cpus
from cli.errors import ExitCode
from cli.parameters import Duration, Share, json_option, require_writable

if TYPE_CHECKING:
    from benchmarks.compare import Comparison, Pair
    from benchmarks.results_file import Results
    from benchmarks.run import Progress, RunSummary

_SEED = re.compile(r"[0-9]{1,10}")
_SHOWN_PAIRS = 20
_MOST_SEEDS = 1000


class SeedList(click.ParamType[tuple[int, ...]]):
    """Seeds separated by commas: ``0,1,2``."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Turn the text into seeds, in the order given, each once."""
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if len(parts) > _MOST_SEEDS or not all(_SEED.fullmatch(part) and int(part) < 2**31 for part in parts):
            self.fail(f"{str(value)[:60]!r} is not a list of seeds; expected 0,1,2, each below 2^31", param, ctx)
        return tuple(dict.fromkeys(map(int, parts)))


@click.group(short_help="Compare solvers on the benchmark suites.")
def bench() -> None:
    """Run the solver benchmark suites, compare two runs, and write reports."""


@bench.command("list", short_help="Suites and solvers there are.")
@json_option
def list_(as_json: bool) -> None:
    """List suites, and what can be compared on them."""
    from benchmarks.best_known import read_stored
    from benchmarks.contenders import contenders, groups
    from benchmarks.suites import SUITES
    from cli.output import make_console, print_json, print_table

    known = contenders()
    # As stored: to make some of them takes the examples, which an installed package does not have.
    suites = {name: len(suite.instances) for name, suite in read_stored().items()}
    if as_json:
        print_json(
            {
                "suites": [
                    {
                        "name": name,
                        "instances": count,
                        "summary": SUITES[name].summary,
                        "source": SUITES[name].source,
                        "deadline_s": SUITES[name].deadline_s,
                        "solvers": SUITES[name].solvers.split(","),
                    }
                    for name, count in suites.items()
                ],
                "solvers": [
                    {
                        "name": contender.name,
                        "summary": contender.summary,
                        "leaves_out": contender.leaves_out,
                        "repeats": contender.repeats_told(),
                        "repeats_by_wall_clock": str(contender.repeats),
                    }
                    for contender in known.values()
                ],
                "groups": {name: list(members) for name, members in groups().items()},
            }
        )
        return
    console = make_console()
    print_table(
        console,
        ["suite", "instances", "deadline s", "what it is"],
        [[name, str(count), f"{SUITES[name].deadline_s:g}", SUITES[name].summary] for name, count in suites.items()],
    )
    click.echo()
    print_table(
        console,
        ["solver", "same plan again", "with --wall-clock", "what it is"],
        [[c.name, c.repeats_told(), str(c.repeats), c.summary] for c in known.values()],
    )


@bench.command(
    short_help="Measure suites into a file.",
    epilog="\b\nreplan bench run all --out results.jsonl\n"
    "replan bench run grid --solvers portfolio,milp --seeds 0,1,2 --deadline 5s --out grid.jsonl",
)
@click.argument("suites", metavar="SUITE...", nargs=-1, required=True)
@click.option(
    "--out", "path", type=click.Path(path_type=Path), metavar="FILE", required=True, help="JSON lines; gone on with."
)
@click.option(
    "--solvers",
    metavar="LIST",
    help="Solvers by name, and groups of them (all, solvers, milp, rules, techniques), separated by commas.  "
    "[default: each suite's own]",
)
@click.option("--seeds", type=SeedList(), default="0", show_default=True, help="Seeds of the searches: 0,1,2.")
@click.option("--deadline", type=Duration(), help="Time of each search: 5s.  [default: each suite's own]")
@click.option(
    "--wall-clock",
    is_flag=True,
    help="Stop searches by the wall clock. By default deadlines count work, so that the same seeds give the same plans.",
)
@click.option(
    "--gap", type=Share(), help="Stop a search once it is this near to the bound: 1%.  [default: each suite's own]"
)
@click.option("--instances", metavar="PATTERN", default="*", help="Only instances with such names: 'g0*'.")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Threads of each search, of those that can.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    help="Rows measured at once.  [default: as many as there are CPUs for their threads]",
)
@click.option(
    "--force", is_flag=True, help="Go on with a file of another commit or machine; the new rows say what differs."
)
@json_option
def run(
    suites: tuple[str, ...],
    path: Path,
    solvers: str | None,
    seeds: tuple[int, ...],
    deadline: float | None,
    wall_clock: bool,
    gap: float | None,
    instances: str,
    workers: int,
    processes: int | None,
    force: bool,
    as_json: bool,
) -> int:
    """Measure every solver on every instance of each SUITE, or of all.

    Each answer is validated, replayed to its period and proved free of deadlock. Rows are added to the file one by one; what it
    has already is not measured again, so that a run that was stopped is gone on with by running it again.
    """
    require_writable(path)
    from benchmarks.run import RunOptions
    from benchmarks.run import run as run_suites
    from benchmarks.suites import suites_named

    options = RunOptions(
        suites=suites_named(suites),
        solvers=solvers,
        seeds=seeds,
        deadline_s=deadline,
        target_gap=gap,
        wall_clock=wall_clock,
        instances=instances,
        workers=workers,
        processes=processes or max(1, num_cpus() // workers),
        force=force,
    )
    summary = run_suites(options, path, (lambda _progress: None) if as_json else _print_row)
    _print_summary(path, summary, as_json=as_json)
    return ExitCode.INVALID_PLAN if summary.failed else ExitCode.OK


def _print_row(progress: Progress) -> None:
    row = progress.row
    gap = "" if row.gap is None else f"  gap {row.gap:.3%}"
    click.echo(
        f"{progress.number}/{progress.total}  {row.suite}/{row.instance}  {row.solver}  {row.status}{gap}  {row.solve_s:.2f} s",
        err=True,
    )


def _print_summary(path: Path, summary: RunSummary, *, as_json: bool) -> None:
    from cli.output import print_json

    if as_json:
        print_json(
            {
                "results": str(path),
                "measured": summary.measured,
                "skipped": summary.skipped,
                "cut_short": summary.cut_short,
                "source_changed": summary.source_changed,
                "failed": [
                    {
                        "suite": r.suite,
                        "instance": r.instance,
                        "solver": r.solver,
                        "status": r.status,
                        "detail": r.detail,
                    }
                    for r in summary.failed
                ],
            }
        )
        return
    if summary.cut_short:
        click.echo("the file's last row was half-written: it is measured again")
    click.echo(f"{path}: {summary.measured} rows measured, {summary.skipped} were there")
    if summary.source_changed:
        click.echo("the sources changed during the run: its rows may be of both")
    for row in summary.failed:
        click.echo(f"{row.suite}/{row.instance}  {row.solver}  {row.status}: {row.detail}")


@bench.command(
    short_help="Compare two files of results.",
    epilog="\b\nreplan bench compare before.jsonl after.jsonl --tolerance 0.1%",
)
@click.argument("before", metavar="BEFORE", type=click.Path(path_type=Path))
@click.argument("after", metavar="AFTER", type=click.Path(path_type=Path))
@click.option(
    "--tolerance",
    type=Share(),
    default="0",
    show_default=True,
    help="Share by which a period may grow and still be the same: 0.1%.",
)
@json_option
def compare(before: Path, after: Path, tolerance: float, as_json: bool) -> int:
    """Compare BEFORE with AFTER row by row: periods, gaps, times.

    Ends with status 11 where a period got worse, or a plan is gone.
    """
    from benchmarks.compare import Verdict
    from benchmarks.compare import compare as compare_rows
    from benchmarks.results_file import read_results

    files = [_told(path, read_results(path)) for path in (before, after)]
    found = compare_rows(files[0].rows, files[1].rows, tolerance=tolerance)
    _print_comparison(found, as_json=as_json)
    return ExitCode.WORSE if found.of(Verdict.WORSE) else ExitCode.OK


def _told(path: Path, results: Results) -> Results:
    if results.cut_short:
        click.echo(f"{path}: the last row is half-written and left out", err=True)
    return results


def _print_comparison(found: Comparison, *, as_json: bool) -> None:
    from benchmarks.compare import Verdict
    from cli.output import make_console, print_json, print_table

    counts = {verdict: len(found.of(verdict)) for verdict in Verdict}
    if as_json:
        print_json(
            {
                "pairs": len(found.pairs),
                "tolerance": found.tolerance,
                **{str(verdict): count for verdict, count in counts.items()},
                "plans": found.plans,
                "same_plans": found.same_plans,
                "unrepeated": len(found.unrepeated),
                "only_before": found.only_before,
                "only_after": found.only_after,
                "rows": [_pair_document(pair) for pair in found.pairs],
            }
        )
        return
    rows = [
        [
            name,
            str(len(pairs)),
            *(str(sum(pair.verdict is verdict for pair in pairs)) for verdict in Verdict),
            _mean_text([pair.period_ratio for pair in pairs], 5),
            _mean_text([pair.time_ratio for pair in pairs], 2),
            str(sum(pair.same_plan for pair in pairs)),
        ]
        for name, pairs in found.by_solver.items()
    ]
    console = make_console()
    print_table(console, ["solver", "rows", "better", "same", "worse", "period ratio", "time ratio", "same plan"], rows)
    click.echo(f"\n{found.same_plans} of {found.plans} plans are the same, operation by operation")
    for verdict in (Verdict.WORSE, Verdict.BETTER):
        pairs = found.of(verdict)
        if pairs:
            click.echo(f"\n{verdict}:")
            print_table(
                console,
                ["suite", "instance", "solver", "period us", "now", "gap", "now", "time ratio"],
                [_pair_row(pair) for pair in pairs[:_SHOWN_PAIRS]],
            )
        if len(pairs) > _SHOWN_PAIRS:
            click.echo(f"and {len(pairs) - _SHOWN_PAIRS} more; --json lists all")
    if found.unrepeated:
        pair = found.unrepeated[0]
        click.echo(
            f"\n{len(found.unrepeated)} plans of solvers that repeat themselves are other ones, "
            f"the first of {pair.after.solver} on {pair.after.instance}"
        )
    if found.only_before or found.only_after:
        click.echo(f"\nin one file only: {found.only_before} rows before, {found.only_after} after")


def _mean_text(ratios: Sequence[float | None], digits: int) -> str:
    from benchmarks.compare import mean_ratio

    known = [ratio for ratio in ratios if ratio is not None]
    return f"{mean_ratio(known):.{digits}f}" if known else "-"


def _pair_row(pair: Pair) -> list[str]:
    before, after = pair.before, pair.after
    return [
        after.suite,
        after.instance,
        after.solver,
        *(row.status if (p := row.checked_period_ns) is None else f"{p / 1000:.3f}" for row in (before, after)),
        *("" if row.gap is None or row.is_failure else f"{row.gap:.3%}" for row in (before, after)),
        _mean_text([pair.time_ratio], 2),
    ]


def _pair_document(pair: Pair) -> dict[str, Any]:
    return {
        **{
            name: getattr(pair.after, name)
            for name in ("suite", "instance", "solver", "seed", "deadline_s", "target_gap")
        },
        "verdict": str(pair.verdict),
        "same_plan": pair.same_plan,
        "period_ratio": pair.period_ratio,
        "time_ratio": pair.time_ratio,
        **{
            when: {name: getattr(row, name) for name in ("status", "period_ns", "bound_ns", "gap", "solve_s")}
            for when, row in (("before", pair.before), ("after", pair.after))
        },
    }


@bench.command(
    short_help="Write a report of a file of results.", epilog="\b\nreplan bench report results.jsonl --out report"
)
@click.argument("path", metavar="RESULTS", type=click.Path(path_type=Path))
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    required=True,
    help="Folder for report.md and its plots.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder with zb_reference.json, to have Zero Bubble's own scheduler beside ours.  [default: ../shared/data]",
)
@json_option
def report(path: Path, folder: Path, data: Path | None, as_json: bool) -> None:
    """Write a Markdown report of RESULTS with plots: gaps, times, techniques, growth, the integer program."""
    from benchmarks.report import write_report
    from benchmarks.results_file import read_results
    from benchmarks.zb_reference import SHARED
    from cli.output import print_json

    results = _told(path, read_results(path))
    written = write_report(results.rows, folder, data=data or SHARED)
    if as_json:
        print_json({"files": [str(name) for name in written]})
        return
    for name in written:
        click.echo(str(name))
