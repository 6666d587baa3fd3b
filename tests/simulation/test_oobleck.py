"""Oobleck's simulator: rules on small traces, and its artifact's own tables where they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulation.errors import TraceError
from simulation.evaluation import SHARED, Options, oobleck, oobleck_model
from simulation.oobleck import OobleckModel, linear_throughput, play_oobleck
from simulation.trace import Trace
from simulation.trace_file import parse_trace
from solver_models.result import SolveOptions

TABLE = SHARED / "oobleck_throughput.json"
with_data = pytest.mark.skipif(not TABLE.exists(), reason=f"the artifact's tables are not there: {TABLE}")

MODEL = OobleckModel(samples_per_step=100, restart_s=5, samples_per_s={n: float(n) for n in range(15, 31)})


def instances(*rows: tuple[float, str, str], count: int = 20) -> Trace:
    """``count`` nodes at second 0, then some rows."""
    first = [f"0,add,m{i}" for i in range(count)]
    return parse_trace("\n".join(["seconds,event,node", *first, *(f"{t},{e},{n}" for t, e, n in rows), ""]), None)


def test_steps_after_the_first_rendezvous() -> None:
    """Ready at 45 s, training from 50 s at 20 samples/s, 5 s a step: by 100 s nine are finished, as the end no longer happens."""
    result = play_oobleck(MODEL, instances((100, "remove", "m0")))
    assert (result.steps, result.samples_per_s) == (9, pytest.approx(20.0))


def test_a_removal_loses_the_step_that_would_end_after_the_rendezvous() -> None:
    """Removed at 62 s, gathered until 67 s: the step that ends at 65 s counts, the next is begun anew at 67 s, 5.263 s long."""
    result = play_oobleck(MODEL, instances((62, "remove", "m0"), (100, "remove", "m1")))
    # Ends at 55, 60, 65; then 67 + 5.263 n < 100 for n = 6.
    assert result.steps == 9
    assert result.samples_per_s == pytest.approx(900 / (67 + 6 * 5.263 - 50))


def test_a_new_node_joins_at_the_next_removal() -> None:
    """One added at 60 s does not train before something is removed."""
    alone = play_oobleck(MODEL, instances((60, "add", "x"), (200, "remove", "m0")))
    # (200 - 50) / 5 = 30 steps would end by 200; the last one's end is no longer played.
    assert alone.steps == 29
    joined = play_oobleck(MODEL, instances((60, "add", "x"), (150, "remove", "m0"), (300, "remove", "m1")))
    # 19 and the new one are 20 again, from 155 s; the step begun at 150 s ends at 155 s, after the rendezvous does.
    assert joined.steps == 20 + 28


def test_overlapping_rendezvous_stop_training() -> None:
    """Two removals 2 s apart: the artifact trains no more until a node is ready, its rules as meant go on with 18."""
    rows = [(62, "remove", "m0"), (64, "remove", "m1"), (200, "add", "x")]
    assert play_oobleck(MODEL, instances(*rows)).steps == 3  # type: ignore[arg-type]
    assert play_oobleck(MODEL, instances(*rows), stops_after_overlap=False).steps > 20  # type: ignore[arg-type]


def test_too_few_nodes() -> None:
    """Eleven do not train."""
    with pytest.raises(TraceError, match="no step"):
        play_oobleck(MODEL, instances((500, "remove", "m0"), count=11))


def test_linear_fit() -> None:
    """Half of the nodes at a slope of 0.9 have 55 % of the throughput."""
    fit = linear_throughput(100.0, 0.9)
    assert (fit[30], fit[15]) == (100.0, pytest.approx(55.0))


@with_data
def test_the_artifacts_tables() -> None:
    """Steps of models with tables of throughputs to two, those of a linear fit to 3 %, as is throughput."""
    rows = list(oobleck(Options(data=SHARED, solve=SolveOptions(), policies=())))
    assert len(rows) == 50
    for row in rows:
        if row["has_table"]:
            assert abs(row["steps"] - row["artifact_steps"]) <= 2, row
        assert row["steps"] == pytest.approx(row["artifact_steps"], rel=0.03), row
        assert row["samples_per_s"] == pytest.approx(row["artifact"], rel=0.03), row


@with_data
def test_the_slope_of_pipeline_templates() -> None:
    """The constant is the mean of the artifact's five slopes, and its restart is the largest of theirs."""
    from simulation.constants import REGROUP_S, TEMPLATE_SLOPE

    data: Any = json.loads(Path(TABLE).read_text(encoding="utf-8"))
    slopes = data["linear_fit"]["a"].values()
    assert sum(slopes) / len(slopes) == pytest.approx(TEMPLATE_SLOPE, abs=5e-4)
    assert max(data["restart_s"]["oobleck"].values()) == REGROUP_S
    assert oobleck_model(data, "GPT-3-medium").samples_per_s[30] == 38.47
