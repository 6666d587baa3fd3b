"""Sections of a report, from rows whose figures are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import BenchmarkFileError
from benchmarks.plots import plots
from benchmarks.report import in_order, report_text
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
from benchmarks.view import View, mean_period
from benchmarks.zb_reference import read_reference, zero_bubble
from benchmarks.zero_bubble import zero_bubble_rows
from tests.benchmarks.rows import make_row

SHARED = Path(__file__).parents[3] / "shared" / "data"
NONE: dict[str, Any] = {"period_ns": None, "gap": None, "schedule_sha256": None, "status": "no_plan_by_deadline"}
MIB = 2**20


def view(*rows: Row) -> View:
    """Rows as a report has them."""
    return View(rows=in_order(rows))


def test_gaps_are_to_the_best_bound_that_any_row_knows() -> None:
    """One solver proved 1000, another only 900: 1100 is 10 % away for both; a row that failed proves nothing."""
    rows = (
        make_row(bound_ns=1000, period_ns=1100, status="feasible"),
        make_row(solver="annealing", bound_ns=900, period_ns=1100, status="feasible"),
        make_row(solver="naive", bound_ns=5000, period_ns=1000, status="invalid"),
    )
    made = view(*rows)
    assert [made.gap(row) for row in made.rows] == [pytest.approx(0.1), pytest.approx(0.1), None]
    text = summaries(made)
    assert "| small | portfolio | 5 | 1 | 1 | 0 | 10.000 % | 10.000 % |" in text
    assert "| small | naive | 5 | 1 | 0 | 0 | - | - |" in text
    assert "1 rows failed" in measured(made)


def test_what_deadlines_count_is_told() -> None:
    """Work, but for the integer program; or seconds."""
    ours = make_row(clock="work", repeats="always")
    program = make_row(solver="milp_cbc", clock="wall", repeats="unless cut")
    assert "Deadlines count work, so that the same seeds give the same plans." in measured(view(ours))
    assert "but for those of milp_cbc: seconds of the wall clock." in measured(view(ours, program))
    assert "Deadlines are seconds of the wall clock." in measured(view(make_row(clock="wall"), program))
    assert "No deadline was looked at." in measured(view(make_row(solver="naive")))
    text = summaries(view(ours, program))
    assert "| small | portfolio | 5 | 1 | 1 | 1 | 0.000 % | 0.000 % | 0.50 | 0.50 | always |" in text
    assert "| 0.50 | 0.50 | unless cut |" in text


def test_what_has_no_plan_is_told_by_why() -> None:
    """By deadline, not applicable, not installed: each its own mark."""
    rows = [
        make_row(solver="milp_cbc", **NONE),
        make_row(solver="milp_highs", **(NONE | {"status": "not_applicable"})),
        make_row(solver="milp_scip", **(NONE | {"status": "not_installed"})),
        make_row(),
        make_row(solver="rule:passes", period_ns=1010, status="feasible"),
    ]
    made = view(*rows)
    assert gap_table(made, "small").splitlines()[-1] == "| D2-P2-M2-f0-free | 24 | - | n/a | n/i | 0.000 % | 1.000 % |"
    assert "1 not installed" in summaries(made)
    assert "rule:passes" not in summaries(made)
    assert "rule:passes" in summaries(made, of_rules=True)


def test_the_integer_program_is_judged_on_the_same_instances() -> None:
    """4 s over 0.5 s are 8 times; one better period is told, loudly."""
    ours, theirs = make_row(), make_row(solver="milp_cbc", period_ns=1000, solve_s=4.0)
    text = integer_program(view(ours, theirs))
    assert "the same or better everywhere" in text
    assert "8.0 times as long in the geometric mean of 1 cases" in text
    text = integer_program(view(ours, make_row(solver="milp_cbc", period_ns=999, solve_s=4.0)))
    assert "**The integer program is better in 1 cases.**" in text
    assert integer_program(view(ours)) == ""
    # With another deadline or seed it is another comparison.
    others = [make_row(solver="milp_cbc", period_ns=999, deadline_s=60.0), make_row(solver="milp_cbc", seed=1)]
    assert integer_program(view(ours, *others)) == ""


def test_the_integer_program_is_judged_by_what_stood_its_checks() -> None:
    """A plan that failed is not better and its time none; one where ours has none is; half the time is not 0 times."""
    failed = make_row(solver="milp_cbc", period_ns=900, status="invalid", solve_s=0.001)
    text = integer_program(view(make_row(), failed))
    assert "the same or better everywhere" in text
    assert "times as long" not in text
    assert text.splitlines()[-1] == "| small | D2-P2-M2-f0-free | 1.000 in 0.50 s | invalid |"
    text = integer_program(view(make_row(period_ns=None, status="crashed"), make_row(solver="milp_cbc", solve_s=4.0)))
    assert "**The integer program is better in 1 cases.**" in text
    assert "It takes 0.50 times as long" in integer_program(view(make_row(), make_row(solver="milp_cbc", solve_s=0.25)))


def test_optimal_is_what_keeps_to_memory() -> None:
    """A plan at the bound that leaves memory out is none of the problem's; one that leaves out staggering is."""
    free = make_row(solver="round_robin", status="feasible", leaves_out="staggering, memory")
    strict = make_row(solver="reroute_split", status="feasible", leaves_out="staggering")
    text = summaries(view(free, strict))
    assert "| small | round_robin | 5 | 1 | 1 | 0 | 0.000 % |" in text
    assert "| small | reroute_split | 5 | 1 | 1 | 1 | 0.000 % |" in text


def test_a_plan_below_a_bound_is_told_loudly() -> None:
    """900 is below what another row proved; so one of them is wrong, unless memory was left out or the plan failed anyway."""
    low = make_row(solver="annealing", period_ns=900, bound_ns=800, status="feasible")
    assert "**1 rows are below a bound" in measured(view(make_row(), low))
    assert "small/D2-P2-M2-f0-free, annealing" in measured(view(make_row(), low))
    for fine in (
        make_row(solver="naive", period_ns=900, leaves_out="memory"),
        make_row(solver="naive", status="invalid"),
    ):
        assert "below a bound" not in measured(view(make_row(), fine))


def test_rows_that_failed_are_told_where_plans_are_counted() -> None:
    """Of two rows one has a plan; the other, which has a period too, is invalid."""
    rows = (make_row(), make_row(seed=1, status="invalid"))
    assert summaries(view(*rows)).splitlines()[-1].endswith("| 1 invalid |")


def test_techniques_have_the_same_deadline() -> None:
    """Ours was given 60 s too, in which it found 800; the others were not, so it is compared with what it found in 5."""
    periods = {"naive": 2000, "round_robin": 1500, "reroute": 1400, "reroute_split": 1200, "portfolio": 1000}
    rows = [make_row(solver=name, period_ns=period) for name, period in periods.items()]
    text = techniques(view(*rows, make_row(deadline_s=60.0, period_ns=800, bound_ns=800)))
    assert "| 2.000 |" in text
    assert techniques(view(*rows[:-1], make_row(deadline_s=60.0))) == ""


def test_gaps_of_several_deadlines_name_them() -> None:
    """A column after 60 s beside one after 5 s."""
    made = view(make_row(deadline_s=60.0), make_row(solver="naive"))
    assert gap_table(made, "small").startswith("| instance | operations | portfolio, 60 s | naive, 5 s |")


def test_techniques_are_compared_where_all_have_a_plan() -> None:
    """2000 over 1000 is 2; an instance that lacks one of them is left out."""
    periods = {"naive": 2000, "round_robin": 1500, "reroute": 1400, "reroute_split": 1200, "portfolio": 1000}
    rows = [make_row(solver=name, period_ns=period, status="feasible") for name, period in periods.items()]
    rows += [make_row(solver=name, instance="other", period_ns=9000) for name in list(periods)[1:]]
    lines = techniques(view(*rows)).splitlines()[2:]
    assert [line.split("|")[-3].strip() for line in lines] == ["2.000", "1.500", "1.400", "1.200", "1.000"]
    assert all(line.startswith("| small | 1 |") for line in lines)


def test_time_to_gap_counts_what_reached_it() -> None:
    """A row that stops at 1 % is none of the full ones; one that stayed above is not counted."""
    rows = [
        make_row(),
        make_row(target_gap=0.01, period_ns=1010, status="feasible", solve_s=0.25),
        make_row(target_gap=0.01, seed=1, period_ns=1011, status="feasible", solve_s=5.0),
    ]
    made = view(*rows)
    assert len(made.full) == 1
    assert time_to_gap(made).splitlines()[-1] == "| small | portfolio | 1.000 % | 1 of 2 | 0.250 | - | - |"
    assert "time-to-gap.png" in plots(made)


def test_times_to_a_gap_are_of_all_rows() -> None:
    """Ten rows of 1 to 10 s: five are there after 5, nine after 9; where only four of ten get there, half never are."""
    rows = [make_row(target_gap=0.01, seed=number, solve_s=float(number)) for number in range(1, 11)]
    text = time_to_gap(view(make_row(), *rows))
    assert text.splitlines()[-1] == "| small | portfolio | 1.000 % | 10 of 10 | 5.000 | 9.000 | 10.000 |"
    late = [make_row(target_gap=0.01, seed=number, period_ns=1100, status="feasible") for number in range(5, 11)]
    text = time_to_gap(view(make_row(), *rows[:4], *late))
    assert text.splitlines()[-1] == "| small | portfolio | 1.000 % | 4 of 10 | - | - | - |"


def grown(operations: int, solve_s: float) -> Row:
    """A row of the suite ``growth`` that takes 200 bytes an operation, 300 while it is checked."""
    return make_row(
        suite="growth",
        solver="list_scheduling",
        instance=f"n{operations}",
        operations=operations,
        solve_s=2 * solve_s,
        solve_cpu_s=solve_s,
        base_bytes=100 * MIB,
        solve_peak_bytes=100 * MIB + 200 * operations,
        check_peak_bytes=100 * MIB + 300 * operations,
    )


def test_growth_has_its_exponent_and_bytes_an_operation() -> None:
    """A hundred times the CPU time for ten thousand times the operations: the power 0.5."""
    made = view(grown(1000, 0.01), grown(10_000_000, 1.0))
    text = growth(made)
    assert "to the power of 0.50" in text
    assert "| n10000000 | 10,000,000 | 2.00 | 1.00 | 0.10 | 200 | 0.10 | 300 |" in text
    assert plots(made)["growth.png"].startswith(b"\x89PNG")


def test_whole_commands_show_their_peak() -> None:
    """The larger one of both."""
    row = make_row(suite="cluster", solver="command", solve_peak_bytes=2**30, check_peak_bytes=2**31)
    assert "2.00 GiB" in whole_commands(view(row))


def test_forced_rows_are_told() -> None:
    """With what was forced."""
    text = measured(view(make_row(), make_row(seed=1, forced=("commit",))))
    assert "**1 rows were added by force to rows of another commit.**" in text


def test_better_periods_than_stored_are_told() -> None:
    """Only where the instance is the same problem, and nothing is left out of it."""
    instance = next(SUITES["small"].make())
    own = {"instance": instance.name, "instance_sha256": instance.sha256(), "period_ns": 10**9, "status": "feasible"}
    told = better_than_known(view(make_row(**own, bound_ns=10**9 - 1)))
    assert f"| small | {instance.name} | bound |" in told
    assert better_than_known(view(make_row(**(own | {"instance_sha256": "1" * 64}), bound_ns=10**9 - 1))) == ""


def zero_bubble_row(name: str, period_ns: int) -> Row:
    """A row of ours on one of the measured rows."""
    bound_ns = next(row.work_ns for row in zero_bubble_rows() if row.name == name)
    return make_row(suite="zero-bubble", instance=name, period_ns=period_ns, bound_ns=bound_ns, status="feasible")


def test_published_periods_are_met_by_plans_that_stood_their_checks() -> None:
    """One row of Zero Bubble's, met by a plan that is valid, and by one that is not."""
    rows = [row for row in SUITES["zero-bubble"].make() if row.published_ns is not None][:1]
    sound = {"suite": "zero-bubble", "instance": rows[0].name, "instance_sha256": rows[0].sha256(), "period_ns": 1}
    assert "at most that in 1, and less in 1" in better_than_known(view(make_row(**sound, bound_ns=1)))
    assert "at most that" not in better_than_known(view(make_row(**sound, bound_ns=1, status="invalid")))


def test_ours_stands_beside_zero_bubbles_own(tmp_path: Path) -> None:
    """24 x 45.945 ms of work: ours of 1120 ms below a scheduler's 1130 ms, in the one row where the bound leaves room."""
    name = "zb-1.5b-m24-mem2"
    row = {
        "scheduler": "zb",
        "source": "paper 1.5B",
        "num_microbatches": 24,
        "memory_limit_over_1f1b": 2,
        "longest_stage_time": 1130.0,
    }
    as_v = row | {"scheduler": "zbv", "memory_limit_over_1f1b": 1, "longest_stage_time": 1186.0225}
    (tmp_path / "zb_reference.json").write_text(json.dumps({"rows": [row, row | {"source": "unit"}, as_v]}))
    made = view(zero_bubble_row(name, 1_120_000_000))
    text = zero_bubble(made, tmp_path)
    assert "in 1 of 1 rows: ours is below it in 1 of those, and above it in 0 rows" in text
    # 1 - 24 * 45.945 / 1120 = 0.01546
    assert "| 0.0155 | 0.0433 | 1130.000 | 0.99115 |" in text
    text = zero_bubble(view(zero_bubble_row("zb-1.5b-m24-v", 1_186_022_500)), tmp_path)
    assert "1F1B's memory as a V" in text
    assert "in 1 of 1 rows: ours is below it in 0 of those, and above it in 0 rows" in text
    assert "| 0.0703 |  | 1186.023 | 1.00000 |" in text
    assert "published rates alone" in zero_bubble(made, None)
    assert zero_bubble(view(make_row()), tmp_path) == ""


@pytest.mark.parametrize("text", ["[]", "{}", '{"rows": [{}]}', '{"rows": [{"source": 1}]}', "nonsense"])
def test_a_reference_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    """Rather than compared in part."""
    (tmp_path / "zb_reference.json").write_text(text)
    with pytest.raises(BenchmarkFileError):
        read_reference(tmp_path)


@pytest.mark.skipif(not (SHARED / "zb_reference.json").exists(), reason="the data beside the project is not there")
def test_every_measured_row_has_its_reference() -> None:
    """All 36, none below the work of its microbatches."""
    found = read_reference(SHARED)
    rows = list(zero_bubble_rows())
    assert {row.name for row in rows} <= set(found)
    assert all(found[row.name] >= row.work_ns for row in rows)


def test_a_failed_seed_leaves_a_solver_without_a_mean() -> None:
    """Rather than the mean of those that stood their checks."""
    stood = make_row(seed=0, period_ns=10, bound_ns=10)
    assert mean_period([stood], stood.solver) == 10
    assert mean_period([stood, make_row(seed=1, period_ns=10, bound_ns=10, status="invalid")], stood.solver) is None


def test_sections_without_rows_are_left_out() -> None:
    """A report of one suite says nothing of growth."""
    text = report_text(view(make_row()), ())
    assert "## Solvers" in text
    assert "## Growth" not in text
    assert "![" not in text
