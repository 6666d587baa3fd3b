"""Text grids of schedules."""

from __future__ import annotations

from planner.operation import Operation, Worker, parse_operation
from planner.render_grid import render_around, render_grid
from planner.schedule import parse_schedule

TEXT = "0/0: 0F0.0@0+1 0F0.1@1+1 0B0.0@4+2\n0/1: 1F0.0@1+1 1B0.0@2+2\n"
SCHEDULE = parse_schedule(TEXT, 1, 2)


def test_grid_of_two_slots() -> None:
    """The shortest operation, 1 ns, gets 5 columns for its name of 4 letters; 6 ns take 30."""
    assert render_grid(SCHEDULE, mark=(Worker(0, 1), parse_operation("1F0.0"))) == (
        "0 to 6 ns; one column is 0.2 ns\n"
        "0/0 F0.0|F0.1|          B0.0     |\n"
        "0/1      F0.0|B0.0     |\n"
        "         ^^^^^\n"
    )


def test_names_shrink_to_their_letter() -> None:
    """In 20 columns, 16 beside the workers' names, 1 ns has 2 or 3 of them and 2 ns have 5 or 6."""
    # Column of a time t is t * 16 // 6: 0, 2, 5, 8, 10, 13, 16.
    assert render_grid(SCHEDULE, width=20) == (
        "0 to 6 ns; one column is 0.375 ns\n"
        "0/0 F|F-|     B0.0 |\n"
        "0/1   F-|B0.0|\n"
    )  # fmt: skip


def test_window_and_workers_are_chosen() -> None:
    """Operations across the window's edge are cut there, others left out."""
    grid = render_grid(SCHEDULE, workers=[Worker(0, 1)], start_ns=3, end_ns=5)
    # 2 ns at 5 columns for each 2 ns of B; the second half of B fills the first half of the window.
    assert grid == "3 to 5 ns; one column is 0.4 ns\n0/1 B|\n"


def test_stage_is_named_where_workers_run_several() -> None:
    """Two stages on one worker: names keep their stage."""
    schedule = parse_schedule("0/0: 0F0.0@0+1 1F0.0@1+1 1B0.0@2+2 0B0.0@4+2", 1, 1)
    assert render_grid(schedule).splitlines()[1] == "0/0 0F0.0|1F0.0|1B0.0      |0B0.0      |"


def test_nothing_to_draw() -> None:
    """A schedule without times, or without operations, says so."""
    assert render_grid(parse_schedule("0/0: 0F0.0", 1, 1)) == "nothing to draw\n"
    assert render_grid(parse_schedule("", 1, 1)) == "nothing to draw\n"


def test_operation_without_length_is_marked_all_the_same() -> None:
    """An operation of 0 ns has no columns; its mark stands where it would start."""
    schedule = parse_schedule("0/0: 0F0.0@0+2 0I0.0@2+0 0W0.0@2+2", 1, 1)
    grid = render_grid(schedule, mark=(Worker(0, 0), parse_operation("0I0.0")))
    assert grid.splitlines()[1:] == ["0/0 F0.0|W0.0|", "         ^"]


def test_neighbourhood_shows_the_same_microbatch_elsewhere() -> None:
    """Around 1B0.0 of slot 1 stand the workers of its input and of what needs it, by slot; others do not."""
    orders = {
        "0/0": "0F0.0@0+1 0B0.0@4+2",
        "0/1": "1F0.0@1+1 1B0.0@2+2",
        "1/0": "0F1.0@0+1 0B1.0@4+2",
        "1/1": "1F1.0@1+1 1B1.0@2+2",
    }
    schedule = parse_schedule("".join(f"{worker}: {order}\n" for worker, order in orders.items()), 2, 2)
    grid = render_around(schedule, Worker(0, 1), parse_operation("1B0.0"))
    # The window is that of worker 0/1's own operations, 1 to 4 ns: 15 columns. 0/0 runs nothing in it.
    assert grid == (
        "1 to 4 ns; one column is 0.2 ns\n"
        "0/0\n"
        "0/1 F0.0|B0.0     |\n"
        "         ^^^^^^^^^^\n"
    )  # fmt: skip


def test_neighbourhood_of_what_is_not_there_is_empty() -> None:
    """An operation the worker does not run has no place to mark."""
    assert render_around(SCHEDULE, Worker(0, 0), Operation(parse_operation("1F0.0").kind, 1, 0, 0)) == ""
