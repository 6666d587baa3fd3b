"""Measured stages in a job file's text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from replan_client.torch.profiler_errors import ProfileError
from replan_client.torch.profiler_job_file import put_stages, stages_section

from planner.formats.job_file import job_from_document, job_to_document, parse_job

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


def measured(count: int) -> list[dict[str, Any]]:
    """Entries of all fields that a profile has, each stage's different."""
    return [
        {
            "forward_us": 1000.25 + v,
            "input_grad_us": 900.001,
            "weight_grad_us": 0.0,
            "splittable": v % 2 == 0,
            "activation_bytes": 2**40 + v,
            "weight_grad_bytes": 2**39,
            "optimizer_us": 50.5,
            "parameter_bytes": 10 + v,
            "optimizer_state_bytes": 20,
        }
        for v in range(count)
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_takes_measured_stages_and_keeps_the_rest(path: Path) -> None:
    """The planner reads what was put, finds nothing else changed, and every comment outside the stages is still there."""
    text = path.read_text()
    before = parse_job(text)
    stages = measured(len(before.stages))
    changed = put_stages(text, stages, comment="measured\non two lines")
    job = parse_job(changed)
    for v, stage in enumerate(job.stages):
        assert stage.costs.forward_ns == 1_000_250 + v * 1000
        assert stage.costs.splittable == (v % 2 == 0)
        assert (stage.costs.activation_bytes, stage.parameter_bytes) == (2**40 + v, 10 + v)
    # Nothing but the stages differs; what was not measured comes from stage_costs, where the file has it there.
    kept, new = job_to_document(before), job_to_document(job)
    assert {**kept, "stages": None} == {**new, "stages": None}
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in changed.splitlines() if line.startswith("#")
    ]
    # A second profile replaces the first one.
    assert put_stages(changed, stages, comment="measured\non two lines") == changed


def test_what_was_not_measured_comes_from_stage_costs() -> None:
    """The worked example's transfer time, changed to 7 us, holds for measured stages that say none."""
    text = next(p for p in EXAMPLES if p.stem == "recycle-worked-example").read_text()
    job = parse_job(put_stages(text.replace("transfer_us: 0 ", "transfer_us: 7 "), measured(4)))
    assert [stage.costs.transfer_ns for stage in job.stages] == [7000] * 4


def test_json_keeps_its_other_fields() -> None:
    """A JSON file is read, and stage_overrides, which may not stand beside stages, goes."""
    path = next(p for p in EXAMPLES if p.stem == "recycle-worked-example")
    document = job_to_document(parse_job(path.read_text()))
    del document["stages"]
    overrides = {"stage_costs": measured(1)[0], "stage_overrides": {"2": {"forward_us": 5}}}
    changed = json.loads(put_stages(json.dumps({**document, **overrides}), measured(4)))
    assert "stage_overrides" not in changed
    assert {**changed, "stages": 0} == {**document, "stage_costs": measured(1)[0], "stages": 0}
    assert job_from_document(changed).stages[3].costs.forward_ns == 1_003_250


@pytest.mark.parametrize(
    ("old", "rest"),
    [
        ("stages:\n- forward_us: 1\n- {forward_us: 2}\n", "name: x\n"),
        ('"stage_overrides":\n  "0":\n    forward_us: 1\n\n  # about one\n  "1": {}\n', "# about x\nname: x\n"),
        ("stages: [\n  {forward_us: 1},\n]\n", "name: x"),
        ("stages: []\nstage_overrides: {}\n", "name: x\n"),
    ],
)
def test_the_old_section_goes_whole_however_it_is_written(old: str, rest: str) -> None:
    """Lists without indentation, flow lists over several lines, quoted keys and comments within."""
    new = stages_section([{"forward_us": 3}])
    assert put_stages("schema_version: 1\n" + old + rest, [{"forward_us": 3}]) == "schema_version: 1\n" + new + rest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a job file"),
        ("name: x\n", "expected a job file"),
        ("{name: x}", "begins like JSON"),
        ("schema_version: 1\nwords that say nothing\n", "line 2"),
        ("schema_version: 1\n---\nschema_version: 1\n", "line 2"),
    ],
)
def test_what_is_no_job_file_is_refused(text: str, expected: str) -> None:
    """The message says what was found."""
    with pytest.raises(ProfileError, match=expected):
        put_stages(text, measured(1))
