"""``replan trace generate`` and ``replan simulate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.errors import ExitCode
from cli.main import run

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "recycle-worked-example.yaml")


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A day of failures every three hours."""
    path = str(tmp_path / "t.csv")
    assert run(["trace", "generate", EXAMPLE, "--mtbf", "3h", "--duration", "1d", "--seed", "1", "-o", path]) == 0
    capsys.readouterr()
    return path


def test_generating_tells_what_was_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As one object with --json; a trace that is the same for the same seed."""
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        status = run(
            [
                "trace",
                "generate",
                EXAMPLE,
                "--model",
                "bursty",
                "--rate",
                "500",
                "--duration",
                "10d",
                "-o",
                str(path),
                "--json",
            ]
        )
        assert status == 0
    document = json.loads(capsys.readouterr().out.split("\n}\n")[0] + "\n}")
    assert document["failures_per_node_day"] == 0.5
    assert document["losses"] >= document["returns"] > 0
    assert paths[0].read_text() == paths[1].read_text()


def test_simulating_as_json(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each policy with its goodput, lost time by cause and cost; and a picture."""
    picture = tmp_path / "p.png"
    options = ["--policy", "fault-free,replan,hot-spare", "--price", "2", "--plot", str(picture)]
    status = run(["simulate", EXAMPLE, "--trace", trace, "--duration", "1d", *options, "--json"])
    assert status == 0
    document = json.loads(capsys.readouterr().out)
    assert document["duration_s"] == 86_400
    free, ours, spare = document["policies"]
    assert [free["policy"], ours["policy"], spare["policy"]] == ["fault-free", "replan", "hot-spare"]
    # 18 microbatches every 19 us, but for the iteration in flight at the end.
    assert free["goodput"] == pytest.approx(18 / 19e-6, rel=1e-6)
    assert 0.5 < ours["share_of_fault_free"] < 1
    assert ours["goodput"] / free["goodput"] + sum(ours["lost_s"].values()) / 86_400 == pytest.approx(1, abs=1e-6)
    assert ours["cost_per_million"] == pytest.approx(2 * ours["gpu_hours_per_million"])
    # One spare node beside twelve for a day.
    assert spare["gpu_hours"] == pytest.approx(ours["gpu_hours"] + 24)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_returns_may_take_time(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With an hour from a return until a node can train less is up, and GPU hours count it from then on."""
    shares = []
    for options in ([], ["--ready-after", "1h"]):
        assert run(["simulate", EXAMPLE, "--trace", trace, "--policy", "fault-scaled", *options, "--json"]) == 0
        (outcome,) = json.loads(capsys.readouterr().out)["policies"]
        shares.append((outcome["share_of_fault_free"], outcome["gpu_hours"]))
    assert shares[0] > shares[1]


def test_simulating_for_people(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A heading and a line a policy."""
    assert run(["simulate", EXAMPLE, "--trace", trace, "--policy", "replan,drop-replica"]) == 0
    text = capsys.readouterr().out
    assert "recycle-worked-example on t:" in text
    assert "smaller batch" in text


@pytest.mark.parametrize(
    ("content", "options", "status", "said"),
    [
        ("", [], ExitCode.INPUT, "the trace is empty"),
        ("seconds,event,node\n5,remove,nowhere\n", [], ExitCode.INPUT, "row 2: the job has no node 'nowhere'"),
        ("seconds,event,node\n5,remove,n01\n", ["--policy", "magic"], ExitCode.USAGE, "no policy 'magic'"),
        ("seconds,event,node\n5,remove,n01\n", ["--plot", "x.pdf"], ExitCode.USAGE, "expected .png or .svg"),
        ("seconds,event,node\n5,remove,n01\n", ["--duration", "0s"], ExitCode.USAGE, "is not a duration"),
        ("seconds,event,node\n5,remove,n01\n", ["--price", "nan"], ExitCode.USAGE, "'nan' is not a number"),
        ("seconds,event,node\n5,remove,n01\n", ["--price", "inf"], ExitCode.USAGE, "not in the range"),
        ("seconds,event,node\n5,remove,n01\n", ["--samples-per-microbatch", "nan"], ExitCode.USAGE, "not a number"),
        ("seconds,event,node\n5,remove,n01\n", ["--samples-per-microbatch", "1e-320"], ExitCode.USAGE, "in the range"),
        ("seconds,event,node\n5,remove,n01\n", ["--plot", "nowhere/x.png"], ExitCode.INPUT, "does not exist"),
    ],
)
def test_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, options: list[str], status: ExitCode, said: str
) -> None:
    """Told with its status."""
    path = tmp_path / "t.csv"
    path.write_text(content)
    assert run(["simulate", EXAMPLE, "--trace", str(path), *options]) == status
    assert said in capsys.readouterr().err


def test_a_drawn_trace_without_failures_is_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the published rate twelve nodes may well have none in a day; how long it is then --duration says."""
    path = str(tmp_path / "t.csv")
    assert run(["trace", "generate", EXAMPLE, "--rate", "rsc2", "--duration", "1h", "-o", path]) == 0
    assert "0 losses and 0 returns" in capsys.readouterr().out
    simulate = ["simulate", EXAMPLE, "--trace", path, "--policy", "fault-free,fault-scaled", "--json"]
    assert run([*simulate, "--duration", "1h"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["duration_s"], document["events"]) == (3600, 0)
    assert run(simulate) == ExitCode.INPUT
    assert "--duration" in json.loads(capsys.readouterr().err)["hint"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rate", "fast"], "'fast' is no rate"),
        (["--rate", "0"], "is no rate"),
        (["--shape", "0"], "shape"),
        (["--shape", "0.5"], "--shape is of --model weibull; the model is exponential"),
        (["--model", "weibull", "--rack-share", "5%"], "--rack-share is of --model bursty"),
        (["--rate", "llama3", "--mtbf", "3h"], "expected one of them"),
        (["--mtbf", "0.001", "--repair", "0.001"], "more than 100000 losses and returns"),
    ],
)
def test_bad_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    """Refused before anything is drawn."""
    path = tmp_path / "t.csv"
    assert run(["trace", "generate", EXAMPLE, "-o", str(path), *options]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert not path.exists()
