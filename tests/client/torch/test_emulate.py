"""The command that runs plans with emulated compute."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replan_client.torch import emulate

from tests.client.torch.processes import processes

PROGRAMS = [
    {
        "worker": "0/0",
        "instructions": [
            "COMPUTE 0F0.0",
            "SEND_F 1F0.0 to 0/1",
            "RECV_I 0I0.0 from 0/1",
            "COMPUTE 0B0.0",
            "ALL_REDUCE 0 pipelines 0 weight 1/1",
            "OPTIMIZER_STEP 0",
        ],
    },
    {
        "worker": "0/1",
        "instructions": [
            "RECV_F 1F0.0 from 0/0",
            "COMPUTE 1F0.0",
            "COMPUTE 1B0.0",
            "SEND_I 0I0.0 to 0/0",
            "ALL_REDUCE 1 pipelines 0 weight 1/1",
            "OPTIMIZER_STEP 1",
        ],
    },
]
STAGE = {"forward_us": 1000, "input_grad_us": 500, "weight_grad_us": 500, "input_bytes": 64}


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    """The fork server that all tests share, which has imported what is slow to import."""
    with processes():
        yield


def run(tmp_path: Path, text: str, *options: str) -> int:
    """Run a file with the command."""
    path = tmp_path / "run.json"
    path.write_text(text)
    return emulate.main([*options, "run", str(path)])


def test_a_plan_is_run_and_its_periods_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One period a run, none below the 4 ms that F and B take in both stages, one after the other."""
    document = {"stages": [STAGE, STAGE], "programs": PROGRAMS, "iterations": 4, "warm_up": 1, "runs": 2}
    assert run(tmp_path, json.dumps(document)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert sorted(printed) == ["fastest_us", "period_us", "slowest_us"]
    assert len(printed["period_us"]) == 2
    # The first stage's next F follows its B, which follows all else. The last stage's starts may lie closer together.
    assert min(printed["slowest_us"]) >= 4000


def test_links_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """A message's time and an all-reduce's."""
    assert emulate.main(["links", "--message-bytes", "1000", "--gradient-bytes", "2000", "--peers", "2"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert sorted(printed) == ["all_reduce_us", "transfer_us"]
    assert min(printed.values()) > 0


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("no JSON", (), "cannot be read as JSON"),
        ("[1]", (), "cannot be read"),
        (json.dumps({"stages": [STAGE], "programs": PROGRAMS}), (), "steps the stages (1,); expected some of 0 to 0"),
        (
            json.dumps({"stages": [STAGE | {"forward_us": 1e7}] * 2, "programs": PROGRAMS}),
            ("--timeout-s", "0.5"),
            "no result in time",
        ),
    ],
)
def test_what_goes_wrong_is_said(
    text: str, options: Any, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2 and what was found."""
    assert run(tmp_path, text, *options) == 2
    assert expected in capsys.readouterr().err
