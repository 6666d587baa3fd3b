"""Worker processes of a run: what becomes of one that overruns, dies or is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import pool as pools
from benchmarks.pool import Pool, Task
from benchmarks.row import Measurement
from benchmarks.suites import SUITES

ROOT = Path(__file__).parents[2]
INSTANCE = next(SUITES["small"].make())


def task(solver: str = "naive", **changes: object) -> Task:
    """One on a tiny problem."""
    columns: dict[str, object] = {
        "suite": "small",
        "instance": INSTANCE.name,
        "solver": solver,
        "seed": 0,
        "deadline_s": 1.0,
        "target_gap": 0.0,
        "deterministic": False,
        "workers": 1,
        "operations": INSTANCE.num_operations,
    }
    return Task(**(columns | changes))  # type: ignore[arg-type]


LARGE = task("list_scheduling", suite="growth", instance="D1302-P16-M16", operations=999_936, deadline_s=60.0)
"""Takes seconds, whatever else the machine does."""


def workers_of(parent: int) -> list[int]:
    """Processes that work for a pool of some process: they are told whose they are."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")[:-1]
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if b"benchmarks.worker" in words and words[-1] == str(parent).encode() and state != "Z":
            found.append(int(folder.name))
    return found


def wait_until(happened: Callable[[], object]) -> None:
    """Wait some minutes at most."""
    for _ in range(2400):
        if happened():
            return
        time.sleep(0.1)
    pytest.fail("it did not happen within four minutes")


def test_tasks_are_measured_and_no_process_is_left() -> None:
    """Each once; a worker that is killed at its task costs that task only, and another takes its place."""
    killed = []

    def kill(given: Task) -> None:
        if given == LARGE:
            killed.extend(workers_of(os.getpid()))
            os.kill(killed[0], signal.SIGKILL)

    with Pool(1) as pool:
        found = dict(pool.run([task(), LARGE, task("round_robin")], kill))
    assert killed
    assert workers_of(os.getpid()) == []
    assert [found[given].status for given in (task(), task("round_robin"))] == ["feasible", "feasible"]
    assert (found[LARGE].status, found[LARGE].period_ns) == ("crashed", None)
    assert "signal 9" in found[LARGE].detail


def test_a_worker_that_overruns_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row says after how long."""
    monkeypatch.setattr(pools, "_BASE_S", 0.1)
    monkeypatch.setattr(pools, "_DEADLINES", 0.0)
    monkeypatch.setattr(pools, "_SECONDS_AN_OPERATION", 0.0)
    with Pool(1) as pool:
        ((given, found),) = pool.run([LARGE])
        assert workers_of(os.getpid()) == []
    assert (given, found.status, found.period_ns) == (LARGE, "overran", None)
    assert found.detail.startswith("killed after")


def test_nothing_runs_beside_a_task_that_is_to_run_alone() -> None:
    """Not even where workers are idle."""
    under_way: set[str] = set()
    together: list[set[str]] = []

    def begin(given: Task) -> None:
        under_way.add(given.solver)
        together.append(set(under_way))

    tasks = [task("naive"), task("round_robin"), task("list_scheduling", alone=True), task("rule:passes")]
    with Pool(2) as pool:
        for given, _ in pool.run(tasks, begin):
            under_way.discard(given.solver)
    assert all(len(names) == 1 for names in together if "list_scheduling" in names)
    assert together[-1] == {"rule:passes"}


def test_a_block_that_fails_leaves_no_process() -> None:
    """Also in the middle of a task."""

    def interrupt(_task: Task) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Pool(1) as pool:
        list(pool.run([LARGE], interrupt))
    assert workers_of(os.getpid()) == []


def test_workers_end_with_a_parent_that_is_killed() -> None:
    """SIGKILL leaves it no time to end them."""
    script = (
        "import sys\nfrom benchmarks.pool import Pool, Task\n"
        f"task = Task(suite='growth', instance={LARGE.instance!r}, solver='list_scheduling', seed=0, deadline_s=60.0, "
        f"target_gap=0.0, deterministic=False, workers=1, operations=999936)\n"
        "with Pool(1) as pool:\n    list(pool.run([task], lambda _: print('begun', flush=True)))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begun\n"
        assert len(workers_of(parent.pid)) == 1
        parent.kill()
    wait_until(lambda: not workers_of(parent.pid))


def test_a_measurement_has_its_gap() -> None:
    """1100 over 1000, less one; none without a plan or a bound."""
    assert Measurement(status="feasible", period_ns=1100, bound_ns=1000).gap == pytest.approx(0.1)
    assert Measurement(status="no_plan_by_deadline", bound_ns=1000).gap is None
    assert Measurement(status="feasible", period_ns=1100).gap is None
