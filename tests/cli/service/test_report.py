"""The commands that talk to a service, against a real one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from api.adapters.slurm import slurm_events
from cli.errors import ExitCode
from cli.main import run
from cli.service.client import ServiceClient, parse_address
from cli.service.events import post_report
from tests.serving import Server, serving

EXAMPLES = Path(__file__).parents[3] / "examples"
JOB_FILE = EXAMPLES / "recycle-worked-example.yaml"
REPORTS = EXAMPLES / "reports"


@pytest.fixture
def url(shared_server: Server) -> str:
    """URL of a service that all tests share; each has a job of its own."""
    return str(shared_server.client.base_url).rstrip("/")


@pytest.fixture
def job_id(url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job of 3 pipelines x 4 slots on n00 to n11, registered under the test's name."""
    monkeypatch.setenv("REPLAN_SERVER", url)
    name = str(request.node.name).replace("[", "-").replace("]", "")
    assert run(["jobs", "register", name, str(JOB_FILE)]) == ExitCode.OK
    return name


class Json:
    """Runs commands with ``--json``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, status: ExitCode = ExitCode.OK) -> dict[str, Any]:
        """What a command prints; its exit status must be this."""
        self._capsys.readouterr()
        found = run([*arguments, "--json"])
        shown = self._capsys.readouterr()
        assert found == status, shown.err
        document = json.loads(shown.out if status is ExitCode.OK else shown.err)
        assert isinstance(document, dict)
        return document


@pytest.fixture
def replan(capsys: pytest.CaptureFixture[str]) -> Json:
    """Runs commands with ``--json``."""
    return Json(capsys)


def failed(replan: Json, job_id: str) -> tuple[str, list[str]]:
    """Failed nodes and named workers of the current epoch."""
    failures = replan("jobs", "show", job_id)["epoch"]["failures"]
    return failures["nodes"], failures["workers"]


def test_what_a_registration_does_not_say_stays(job_id: str, replan: Json) -> None:
    """A known job keeps the tolerance and the mode that are not given; neither makes a revision, and none ends a mode."""
    options = (["--tolerance", "2", "--mode", "normalized"], [], ["--tolerance", "0"], ["--mode", "none"], [])
    found = [replan("jobs", "register", job_id, str(JOB_FILE), *given) for given in options]
    expected = [(2, "normalized"), (2, "normalized"), (0, "normalized"), (0, None), (0, None)]
    assert [(answer["tolerance"], answer["mode"]) for answer in found] == expected
    assert {(answer["revision"], answer["epoch"]) for answer in found} == {(1, 1)}


def test_jobs_from_registration_to_deletion(job_id: str, replan: Json, tmp_path: Path) -> None:
    """The same file changes nothing, another one is a new revision; a deleted job is gone."""
    assert replan("jobs", "register", job_id, str(JOB_FILE))["revision"] == 1
    other = tmp_path / "job.yaml"
    other.write_text(JOB_FILE.read_text().replace("forward_us: 1", "forward_us: 2"))
    assert replan("jobs", "register", job_id, str(other))["revision"] == 2
    shown = replan("jobs", "show", job_id)
    assert (shown["job"]["id"], shown["epoch"]["epoch"], shown["acknowledgements"]["num_live"]) == (job_id, 2, 12)
    assert job_id in [job["id"] for job in replan("jobs", "list")["jobs"]]
    assert replan("jobs", "delete", job_id) == {"deleted": job_id}
    assert replan("jobs", "show", job_id, status=ExitCode.INPUT)["code"] == "not_found"
    assert replan("jobs", "delete", job_id, status=ExitCode.INPUT)["code"] == "not_found"


@pytest.mark.slow
def test_a_list_of_several_pages(job_id: str, replan: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are put together."""
    for n in range(3):
        replan("jobs", "register", f"{job_id}-{n}", str(JOB_FILE))
    monkeypatch.setattr("cli.service.jobs._PAGE", 2)
    found = [job["id"] for job in replan("jobs", "list")["jobs"]]
    assert {job_id, *(f"{job_id}-{n}" for n in range(3))} <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.slow
def test_what_people_report(job_id: str, replan: Json) -> None:
    """Nodes, a rank and a worker in one event; slow ones; then all are back."""
    told = replan(
        "report", job_id, "--failed", "n[06-07]", "--failed", "rank:1", "--failed", "worker:0/0", "--iteration", "7"
    )
    assert told["reported"] == [
        {"kind": "node_failed", "nodes": ["n[06-07]"], "ranks": [1], "workers": ["0/0"], "iteration": 7}
    ]
    epoch = told["epoch"]
    assert (epoch["failures"]["nodes"], epoch["failures"]["ranks"], epoch["failures"]["workers"]) == (
        *("n[06-07]", [1]),
        ["0/0"],
    )
    assert (epoch["failed_workers"], epoch["from_iteration"]) == (["0/0", "0/1", "1/2", "1/3"], 7)
    slow = replan("report", job_id, "--degraded", "n09=0.5", "--degraded", "worker:2/2=0.5")["epoch"]
    assert slow["failures"]["degraded"] == {"n09": 0.5, "worker:2/2": 0.5}
    back = replan(
        *("report", job_id, "--recovered", "n[06-07],n09", "--recovered", "rank:1"),
        *("--recovered", "worker:0/0", "--recovered", "worker:2/2"),
    )
    assert back["epoch"]["failed_workers"] == []
    assert back["epoch"]["failures"]["degraded"] == {}


def test_reports_that_the_service_refuses(job_id: str, replan: Json) -> None:
    """Unknown and repeated failures, recoveries of live nodes, stale epochs, a key used twice: code and status of each."""
    first = ("report", job_id, "--failed", "n06", "--idempotency-key", "k1", "--expected-epoch", "1")
    epoch = replan(*first)["epoch"]
    assert replan(*first)["epoch"] == epoch  # the same report again, and the epoch that it made
    refused = {
        ("--failed", "n06"): (ExitCode.INPUT, "already_failed"),
        ("--failed", "n99"): (ExitCode.INPUT, "unknown_node"),
        ("--failed", "n[1"): (ExitCode.INPUT, "hostlist_malformed"),
        ("--recovered", "n07"): (ExitCode.INPUT, "not_failed"),
        ("--failed", "n07", "--expected-epoch", "1"): (ExitCode.CONFLICT, "epoch_conflict"),
        ("--failed", "n07", "--idempotency-key", "k1"): (ExitCode.CONFLICT, "idempotency_key_reused"),
    }
    for arguments, (status, code) in refused.items():
        assert replan("report", job_id, *arguments, status=status)["code"] == code, arguments
    assert replan("report", "no-such-job", "--failed", "n06", status=ExitCode.INPUT)["code"] == "not_found"


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        ("slurm", "sinfo.txt", ("n06", [])),
        pytest.param("kubernetes", "nodes.json", ("n06", []), marks=pytest.mark.slow),
        ("torchft", "lighthouse.html", ("", ["1/0", "1/1", "1/2", "1/3"])),
        pytest.param("nvrx", "cycle_info.4711.0.3", ("n06", []), marks=pytest.mark.slow),
    ],
)
def test_reports_of_other_systems(
    job_id: str, replan: Json, source: str, name: str, expected: tuple[str, list[str]]
) -> None:
    """A dry run reports nothing; then the report is news once."""
    arguments = ("report", job_id, "--from", source, str(REPORTS / name))
    planned = replan(*arguments, "--dry-run")
    assert (len(planned["reported"]), planned["epoch"], failed(replan, job_id)) == (1, None, ("", []))
    told = replan(*arguments, "--expected-epoch", "1", "--iteration", "3")
    assert told["reported"] == [event | {"iteration": 3} for event in planned["reported"]]
    assert (told["epoch"]["from_iteration"], failed(replan, job_id)) == (3, expected)
    assert replan(*arguments)["reported"] == []
    assert replan(*arguments, "--expected-epoch", "1", status=ExitCode.CONFLICT)["code"] == "epoch_conflict"


def test_failures_and_recoveries_of_one_report(job_id: str, replan: Json, tmp_path: Path) -> None:
    """Two events, two epochs, the failure first; recoveries can be left out."""
    replan("report", job_id, "--failed", "n[01,06]")
    text = tmp_path / "sinfo.txt"
    text.write_text("n[00-01,03-05,07-10] idle\nn06 down\nn02 drained\n")
    arguments = ("report", job_id, "--from", "slurm", str(text))
    only_failures = replan(*arguments, "--no-recoveries")
    assert [event["kind"] for event in only_failures["reported"]] == ["node_failed"]
    assert failed(replan, job_id)[0] == "n[01-02,06]"
    text.write_text("n[00-02,04-10] idle\nn03 down\n")
    told = replan(*arguments)
    assert [(event["kind"], event["nodes"]) for event in told["reported"]] == [
        ("node_failed", "n03"),
        ("node_recovered", "n[01-02,06]"),
    ]
    assert (told["epoch"]["failures"]["nodes"], failed(replan, job_id)[0]) == ("n03", "n03")


@pytest.mark.slow
def test_rules_on_the_command_line(job_id: str, replan: Json) -> None:
    """Silent and missing nodes, further conditions, and what a source does not take."""
    dry = ("report", job_id, "--dry-run", "--from")
    slurm = replan(*dry, "slurm", str(REPORTS / "sinfo.txt"), "--silent-nodes", "failed")
    assert slurm["reported"][0]["nodes"] == "n[06,09]"
    nodes = str(REPORTS / "nodes.json")
    assert replan(*dry, "kubernetes", nodes, "--silent-nodes", "keep", "--settle", "5m")["reported"] == []
    status = ExitCode.USAGE
    assert replan(*dry, "nvrx", nodes, "--settle", "1s", status=status)["code"] == "option_invalid"
    assert replan(*dry, "nvrx", nodes, status=ExitCode.INPUT)["code"] == "report_malformed"
    assert replan(*dry, "slurm", "/none", status=ExitCode.INPUT)["code"] == "input_invalid"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--failed", "n06", "--recovered", "n07"],
        ["--failed", "n06", "--from", "slurm"],
        ["--failed", "n06", "file"],
        ["--failed", "n06", "--dry-run"],
        ["--failed", "n06", "--settle", "1s"],
        ["--failed", "rank:x"],
        ["--failed", "worker:1"],
        ["--degraded", "n06"],
        ["--degraded", "=0.5"],
        ["--degraded", "n06=1"],
        ["--degraded", "n06=nan"],
        ["--degraded", "n06=x"],
        ["--degraded", "n06=0.5", "--degraded", "n07=0.6"],
        ["--failed", "n06", "--idempotency-key", "a b"],
        ["--failed", "n06", "--idempotency-key", "a\r\nX: y"],
        ["--from", "pbs"],
    ],
)
def test_wrong_command_lines(arguments: list[str], replan: Json) -> None:
    """Each is refused before anything is sent: nobody listens there."""
    assert replan("report", "j", "--server", "http://127.0.0.1:9", *arguments, status=ExitCode.USAGE)["code"] == "usage"


def test_text_for_people(job_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The new epoch on a few lines; an epoch without a plan says why and what to do."""
    capsys.readouterr()
    assert run(["report", job_id, "--failed", "n06"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert shown.startswith(f"{job_id}: epoch 2, node failed n06\n  Failed ")
    assert "n06 (worker 1/2)" in shown
    assert "27 us an iteration" in shown
    # n02, n06 and n10 are the three workers of slot 2.
    assert run(["report", job_id, "--failed", "n[02,10]"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "none (stage_lost)" in shown
    assert "restore a checkpoint" in shown
    assert run(["jobs", "show", job_id]) == ExitCode.OK
    assert f"{job_id}: recycle-worked-example, revision 1, epoch" in capsys.readouterr().out
    assert run(["jobs", "list"]) == ExitCode.OK
    assert job_id in capsys.readouterr().out


@pytest.mark.slow
def test_keys_and_their_scopes(replan: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key, with one that the service does not know, and with scopes that allow some things only."""
    store = tmp_path / "replan.db"
    keys = {}
    for scope in ("read", "report", "admin"):
        made = replan("keys", "create", "--store", str(store), "--name", scope, "--scope", scope)
        keys[scope] = tmp_path / scope
        keys[scope].write_text(f"{made['key']}\n")
    (tmp_path / "strange").write_text("rpk_AAAAAAAAAAAAAAAA_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
    with serving(store, "--processes", "1", "--require-keys") as server:
        monkeypatch.setenv("REPLAN_SERVER", str(server.client.base_url).rstrip("/"))
        register, failed_node = ("jobs", "register", "j", str(JOB_FILE)), ("report", "j", "--failed", "n06")
        assert replan(*register, status=ExitCode.SERVICE)["code"] == "key_missing"
        monkeypatch.setenv("REPLAN_KEY_FILE", str(tmp_path / "strange"))
        assert replan(*register, status=ExitCode.SERVICE)["code"] == "key_missing"
        monkeypatch.setenv("REPLAN_KEY_FILE", str(keys["report"]))
        assert replan(*register, status=ExitCode.SERVICE)["code"] == "scope_too_small"
        assert replan(*register, "--key-file", str(keys["admin"]))["epoch"] == 1
        assert replan(*failed_node)["epoch"]["epoch"] == 2
        monkeypatch.setenv("REPLAN_KEY_FILE", str(keys["read"]))
        assert replan("jobs", "show", "j")["epoch"]["failures"]["nodes"] == "n06"
        assert replan("report", "j", "--recovered", "n06", status=ExitCode.SERVICE)["code"] == "scope_too_small"
        slurm = ("report", "j", "--from", "slurm", str(REPORTS / "sinfo.txt"))
        assert replan(*slurm)["reported"] == []  # nothing new is nothing to be allowed


def test_watchers_that_report_the_same_at_once(job_id: str, url: str, replan: Json) -> None:
    """Eight watchers see a failure and a recovery: each event makes one epoch, and all end where the report says."""
    replan("report", job_id, "--failed", "n01")
    text = (REPORTS / "sinfo.txt").read_text()

    def watch(_: int) -> None:
        with ServiceClient(parse_address(url)) as client:
            post_report(client, job_id, lambda job, state: slurm_events(text, job, state), extra={})

    with ThreadPoolExecutor(8) as watchers:
        list(watchers.map(watch, range(8)))
    with ServiceClient(parse_address(url)) as client:
        current = client.get("jobs", job_id, "epochs", "current").document()
        epochs = [client.get("jobs", job_id, "epochs", str(n)).document() for n in range(1, current["epoch"] + 1)]
    nodes = [epoch["failures"]["nodes"] for epoch in epochs if epoch["cause"] == "event"]
    assert nodes == ["n01", "n[01,06]", "n06"]
