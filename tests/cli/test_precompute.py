"""``replan precompute`` and ``replan store`` as processes: stopped, killed, beside a server, and from store to store."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.store import Store
from cli.main import run
from planner.formats.packed_plan import unpack_plan
from planner.plan_check import check_plan
from tests.precomputing import JOB, LONG_JOB, SHA256, templates
from tests.serving import REPLAN, serving


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; the test's own time limit ends a wait in vain."""
    while not is_so():
        time.sleep(0.02)


def environment() -> dict[str, str]:
    """The environment without settings of RePlan's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REPLAN_")}


def replan(*arguments: str | Path) -> dict[str, Any]:
    """Run a command with ``--json`` and return what it prints."""
    command = [REPLAN, *map(str, arguments), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The same in this process, which is quicker; exit status 0 unless told otherwise, and what an error prints then."""

    def replan_here(*arguments: str | Path, status: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        found = run([*map(str, arguments), "--json"])
        shown = capsys.readouterr()
        assert found == status, shown.err
        document: dict[str, Any] = json.loads(shown.err if status else shown.out)
        return document

    return replan_here


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The long job's file."""
    path = tmp_path / "long.json"
    path.write_text(json.dumps(LONG_JOB))
    return path


def start(job: Path, store: Path, *options: str, stderr: Any = None) -> subprocess.Popen[str]:
    """Start precomputing for up to two failures, 15 keys of 0.4 s each, on one process."""
    command = [REPLAN, "precompute", str(job), "--tolerance", "2", "--deadline", "400ms", "--processes", "1"]
    command += ["--store", str(store), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment())


def children(pid: int) -> set[int]:
    """Process ids of a process's children."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        pytest.skip("the kernel does not list a process's children")
    return set(map(int, path.read_text().split()))


def test_makes_every_template_and_carries_them_to_another_store(
    tmp_path: Path, here: Callable[..., dict[str, Any]]
) -> None:
    """All five keys of one failure are planned, checked, exported and imported, once; and a damaged file is refused."""
    job, first, there, file = (tmp_path / name for name in ("job.json", "first.db", "there.db", "templates"))
    job.write_text(json.dumps(JOB))
    made = replan("precompute", job, "--store", first, "--deadline", "200ms", "--processes", "1")
    counts = (made["total"], made["done"], made["skipped"], made["failed"], made["failures"])
    assert counts == (5, 5, 0, 0, [])
    assert (made["job_sha256"], made["stored"]["plans"]) == (SHA256, 5)
    assert here("store", "export", file, "--store", first, "--job", job) == {
        "plans": 5,
        "damaged": 0,
        "jobs": 1,
        "output": str(file),
    }
    assert here("store", "import", file, "--store", there) == {"read": 5, "stored": 5}
    assert here("store", "import", file, "--store", there) == {"read": 5, "stored": 0}
    assert templates(first) == templates(there)
    store = Store(str(there))
    record = store.template(SHA256, "0,0,1,0")
    store.close()
    assert record is not None
    check_plan(unpack_plan(record.content))
    file.write_bytes(file.read_bytes()[:-1])
    assert here("store", "import", file, "--store", there, status=3)["code"] == "template_file_invalid"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("precompute", "missing.yaml"), 3, "job_invalid"),
        (("precompute", "job.json", "--ray", "127.0.0.1:10001"), 2, "option_invalid"),
        (("precompute", "job.json", "--store", "missing/replan.db"), 7, "store_failed"),
        (("store", "import", "missing"), 3, "input_invalid"),
        (("store", "export", "missing/templates"), 3, "input_invalid"),
        (("store", "export", "templates", "--store", "missing.db"), 7, "store_failed"),
    ],
)
def test_what_cannot_be_used_is_refused(
    arguments: Sequence[str],
    status: int,
    code: str,
    tmp_path: Path,
    here: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing job, an address that is none of Ray's client, a store in no folder, files that are not there."""
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    monkeypatch.chdir(tmp_path)
    assert here(*arguments, status=status)["code"] == code


def test_an_export_never_replaces_a_good_file_by_an_empty_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store that is not there, one without plans, and one whose plans are all damaged leave the file as it is."""
    missing, empty, file = tmp_path / "missing.db", tmp_path / "empty.db", tmp_path / "templates"
    file.write_bytes(b"good")
    Store(str(empty)).close()
    for store, status, code in ((missing, 7, "store_failed"), (empty, 3, "not_found")):
        assert run(["store", "export", str(file), "--store", str(store), "--json"]) == status
        assert json.loads(capsys.readouterr().err)["code"] == code
    assert not missing.exists()
    add_example_template(empty)
    damage(empty)
    assert run(["store", "export", str(file), "--store", str(empty), "--json"]) == 7
    assert json.loads(capsys.readouterr().err)["code"] == "store_corrupt"
    assert file.read_bytes() == b"good"


def test_an_export_leaves_damaged_plans_out_and_precompute_makes_them_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], here: Callable[..., dict[str, Any]]
) -> None:
    """The sound ones are written, the damaged one is named with status 7, and a second run makes exactly that one."""
    job, store, file = tmp_path / "job.json", tmp_path / "s.db", tmp_path / "templates"
    job.write_text(json.dumps(JOB))
    precompute = ("precompute", job, "--store", store, "--deadline", "200ms", "--processes", "1")
    here(*precompute)
    damage(store, "WHERE failure_key = '0,0,1,0'")
    assert run(["store", "export", str(file), "--store", str(store), "--json"]) == 7
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"plans": 4, "damaged": 1, "jobs": 1, "output": str(file)}
    problem = json.loads(shown.err)
    assert (problem["code"], "'0,0,1,0'" in problem["detail"]) == ("store_corrupt", True)
    made = here(*precompute)
    assert (made["done"], made["skipped"]) == (1, 4)
    assert here("store", "export", file, "--store", store)["plans"] == 5


def add_example_template(path: Path) -> None:
    """Store something under one failure key of the example."""
    store = Store(str(path))
    store.put_template(
        job_sha256=SHA256,
        failure_key="0,0,1,0",
        content=b"plan",
        period_ns=2,
        bound_ns=1,
        solver="x",
        deadline_s=1,
    )
    store.close()


def damage(path: Path, where: str = "") -> None:
    """Change stored plans behind the store's back."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE templates SET content = CAST(content || x'00' AS BLOB) {where}")
        connection.commit()


@pytest.mark.slow
def test_killed_in_the_middle_and_run_again_makes_only_what_is_missing(job: Path, tmp_path: Path) -> None:
    """After SIGKILL to the whole of it the solver process is gone too, and no template is made a second time."""
    store = tmp_path / "replan.db"
    with start(job, store) as process:
        eventually(lambda: store.exists() and len(templates(store)) >= 3)
        solvers = children(process.pid)
        process.kill()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in solvers))
    before = templates(store)
    assert 3 <= len(before) < 15
    again = replan("precompute", job, "--tolerance", "2", "--deadline", "400ms", "--store", store)
    assert (again["total"], again["skipped"], again["done"]) == (15, len(before), 15 - len(before))
    after = templates(store)
    assert len(after) == 15
    assert before.items() <= after.items()


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_in_the_middle_leaves_nothing_running_and_goes_on(
    stop: signal.Signals, status: int, job: Path, tmp_path: Path
) -> None:
    """Ctrl-C on a terminal with its progress bar, and SIGTERM: the next run goes on with the same operation."""
    store = tmp_path / "replan.db"
    ours, theirs = os.openpty()
    with ThreadPoolExecutor() as readers, start(job, store, stderr=theirs) as process:
        os.close(theirs)
        shown = readers.submit(read_all, ours)
        eventually(lambda: store.exists() and len(templates(store)) >= 3)
        solvers = children(process.pid)
        process.send_signal(stop)
        assert process.wait() == status
    assert "/15" in shown.result()
    assert "s left" in shown.result()
    assert not any(Path(f"/proc/{pid}").exists() for pid in solvers)
    before = templates(store)
    opened = Store(str(store))
    (operation,) = opened.list_operations()
    opened.close()
    assert (operation.state, operation.owner, operation.total) == ("queued", None, 15)
    again = replan("precompute", job, "--tolerance", "2", "--deadline", "400ms", "--store", store)
    assert again["operation"] == operation.operation_id
    assert (again["total"], again["done"], again["skipped"]) == (15, 15, 0)
    assert before.items() <= templates(store).items()


def read_all(terminal: int) -> str:
    """What is written to a terminal until its other side closes it."""
    shown = b""
    try:
        while part := os.read(terminal, 65536):
            shown += part
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(terminal)
    return shown.decode()


@pytest.mark.slow
def test_shares_its_store_with_a_running_server(job: Path, tmp_path: Path) -> None:
    """While keys are planned a server on the same store plans, stores and answers."""
    store = tmp_path / "replan.db"
    with serving(store) as server, start(job, store, "--json") as process:
        num_answers = 0
        while process.poll() is None:
            answer = server.post(JOB | {"name": f"job-{num_answers}"}, "n06")
            assert answer.status_code == 201, answer.text
            num_answers += 1
        assert process.stdout is not None
        made = json.loads(process.stdout.read())
        assert (process.returncode, made["done"], made["failed"]) == (0, 15, 0)
        assert num_answers > 3
    assert len(templates(store)) == 15
