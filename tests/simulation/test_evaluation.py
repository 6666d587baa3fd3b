"""The evaluation's jobs and tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simulation import evaluation
from simulation.evaluation import SHARED, Options
from simulation.evaluation_jobs import MODELS, model_job
from simulation.seats import seat_instances
from simulation.trace_file import read_trace
from solver_models.result import SolveOptions

QUICK = Options(
    data=SHARED,
    solve=SolveOptions(deadline_s=0.05, target_gap=0.05),
    policies=("fault-free", "replan", "checkpoint-restart"),
)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_recycles_jobs(model) -> None:  # type: ignore[no-untyped-def]
    """32 GPUs each; 6.7B has 12 * 4096^2 parameters a layer, four layers a slot."""
    job = model_job(model)
    assert job.topology.num_gpus == 32
    assert (job.num_slots, job.num_pipelines) == (model.slots, model.pipelines)
    if model.name == "6.7b":
        assert job.stages[0].costs.forward_ns == 4 * 7_429_500
        assert job.state_bytes(0) == 14 * 4 * 12 * 4096**2


def test_a_table_of_intervals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Policies down, traces across, and where ours lost its time; rows as JSON on demand."""
    monkeypatch.setattr(evaluation, "MODELS", (replace(MODELS[0], microbatches=4),))
    path = tmp_path / "rows.json"
    evaluation.main(["intervals", "--policy", "fault-free,replan", "--deadline", "0.05", "--json", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| policy | medium, 6 h | medium, 2 h | medium, 0.5 h |"
    assert lines[3] == "| fault-free | 100.0 | 100.0 | 100.0 |"
    assert lines[4].startswith("| replan | ")
    assert [line.split(" |")[0] for line in lines if line.startswith("| slower")] == ["| slower"]
    rows = json.loads(path.read_text())
    assert [row["policy"] for row in rows] == ["fault-free", "replan"] * 3
    ours = [row["share"] for row in rows if row["policy"] == "replan"]
    # The more often a node is lost the more is lost to standing still, and eight of 32 are down at the end.
    assert 1 > ours[0] > ours[1] > ours[2] > 0.6


def test_a_row_of_scale(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of 128 workers failed: after migrations never slower than in place, nor than whole pipelines."""
    from simulation.periods import Periods

    job = model_job(replace(MODELS[2], microbatches=8), 16)
    row = evaluation._scale_row(job, Periods(job=job, options=QUICK.solve), 0.1)
    assert row["gpus"] == 128
    assert row["fault_scaled"] == pytest.approx(1 - 13 / 128)
    assert row["migrated"] >= row["in_place"]
    assert row["migrated"] >= row["whole_pipelines"] - 1e-9


@pytest.mark.skipif(not (SHARED / "traces").exists(), reason=f"the traces are not there: {SHARED / 'traces'}")
def test_every_real_trace_is_read_and_played() -> None:
    """All sixteen are valid, and all time is accounted for."""
    paths = sorted((SHARED / "traces").glob("*.csv"))
    assert len(paths) == 16
    job = model_job(replace(MODELS[1], microbatches=4), 2)
    simulation = evaluation.Simulation(job=job, options=QUICK.solve)
    for path in paths:
        trace = seat_instances(read_trace(path, None), job.topology.nodes)
        for outcome in simulation.play(trace, QUICK.policies):
            used = outcome.samples / outcome.fault_free_samples_per_s
            assert used + sum(outcome.lost_s.values()) == pytest.approx(trace.duration_s, rel=1e-6), path.stem


def test_a_table_of_the_ladder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of eight workers of a slot down for two hours: moving some of them is best, and loses less than waiting."""
    monkeypatch.setattr(evaluation, "SPOT_MODEL", replace(MODELS[1], microbatches=8))
    monkeypatch.setattr(evaluation, "LADDER_CASES", ((21_600.0,), (7200.0,), (4,)))
    evaluation.main(["ladder", "--deadline", "0.1"])
    header, _, row = capsys.readouterr().out.splitlines()
    cells = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    # Failures every 6 h and four repairs of 2 h each: 1 / (1/21,600 + 4/7,200) s.
    assert cells["next event s"] == "1662"
    assert cells["best |"].startswith("reroute_after_migration")
    assert int(cells["reroute_after_migration"]) < int(cells["reroute"]) < int(cells["wait_for_repair"])
