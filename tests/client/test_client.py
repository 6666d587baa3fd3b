"""Both clients against a real service."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from replan_client.errors import (
    AlreadyFailedError,
    ArgumentError,
    ClosedError,
    EpochConflictError,
    NoPlanError,
    NotFailedError,
    NotFoundError,
    RequestRefusedError,
    StageLostError,
)
from replan_client.jobs import Event, WorkerAcknowledgement
from replan_client.program import Program

from tests.api.jobs.test_migration import UNEVEN
from tests.client.clients import connected
from tests.jobs import DOCUMENT
from tests.serving import Server

FAILED = Event(kind="node_failed", nodes=("n06",), iteration=7, expected_epoch=1)


@pytest.fixture
def job_id(kind: str, request: pytest.FixtureRequest) -> str:
    """A job of the test's own."""
    return f"{request.node.originalname}-{kind}"


@pytest.fixture
def client(server: Server, kind: str) -> Iterator[Any]:
    """A client of the service."""
    with connected(kind, str(server.client.base_url)) as connection:
        yield connection


def url_of(server: Server) -> str:
    """Where the service is."""
    return str(server.client.base_url).rstrip("/")


def test_a_job_from_its_registration_to_its_acknowledgements(client: Any, job_id: str) -> None:
    """Everything that a worker and a monitor ask for, one after the other."""
    job = client.register_job(job_id, DOCUMENT, tolerance=0)
    assert (job.id, job.name, job.revision, job.epoch, job.tolerance, job.mode) == (
        job_id,
        "recycle-worked-example",
        1,
        1,
        0,
        None,
    )
    assert client.register_job(job_id, DOCUMENT).tolerance == 0
    first = client.current_epoch(job_id)
    assert (first.job, first.epoch, first.cause, first.failed_workers) == (job_id, 1, "registered", ())
    assert first.plan.bound_us <= first.plan.period_us == first.body["plan"]["period_us"]
    assert client.current_epoch(job_id, after=1) is None
    second = client.report(job_id, FAILED, idempotency_key="n06-failed-1")
    # 18 microbatches of 3 us shared by two workers.
    assert (second.epoch, second.cause, second.failed_workers, second.plan.period_us) == (2, "event", ("1/2",), 27)
    assert (second.from_iteration, second.problem, second.moved) == (7, None, {})
    assert next(rung.name for rung in second.ladder if rung.available) == second.chosen == "reroute"
    assert client.report(job_id, FAILED, idempotency_key="n06-failed-1") == second
    assert client.current_epoch(job_id, after=1, wait_s=30) == second
    assert client.epoch(job_id, 2) == second
    assert client.epoch(job_id, 1) == first
    by_name, by_rank = client.program(job_id, 2, "0/2"), client.program(job_id, 2, "rank:2")
    assert by_name == by_rank
    assert (by_name.epoch, by_name.worker, str(by_name.program.worker)) == (2, "0/2", "0/2")
    assert client.program(job_id, 2, "2/2").plan_id == by_name.plan_id != client.program(job_id, 1, "0/2").plan_id
    client.acknowledge(job_id, 2, "rank:2")
    client.acknowledge(job_id, 2, "0/2", iteration=7)
    found = client.acknowledgements(job_id, 2)
    assert (found.epoch, found.num_live, found.from_iteration) == (2, 11, None)
    assert found.acknowledged == (WorkerAcknowledgement(worker="0/2", iteration=7),)
    assert len(found.missing) == 10


def test_programs_are_those_that_the_service_gives(client: Any, job_id: str, server: Server) -> None:
    """All workers' programs, instruction by instruction; all carry out one plan."""
    client.register_job(job_id, DOCUMENT)
    client.report(job_id, FAILED)
    plan_ids = set()
    for pipeline in range(3):
        for slot in range(4):
            worker = f"{pipeline}/{slot}"
            if worker == "1/2":
                continue
            got = client.program(job_id, 2, worker)
            sent = server.client.get(f"/v1/jobs/{job_id}/epochs/2/programs/{worker}").json()
            assert isinstance(got.program, Program)
            assert got.program.to_dict() | {"plan_id": got.plan_id} == sent
            plan_ids.add(got.plan_id)
    assert len(plan_ids) == 1
    with pytest.raises(NotFoundError, match="no live worker '1/2'"):
        client.program(job_id, 2, "1/2")


def test_moved_workers_get_the_programs_of_where_they_stand(client: Any, job_id: str) -> None:
    """By name and by rank; what has to be loaded and from whom stands in the epoch."""
    client.register_job(job_id, UNEVEN | {"name": job_id})
    epoch = client.report(job_id, Event(kind="node_failed", workers=("1/2",)))
    assert (dict(epoch.moved), epoch.position_of("1/3"), epoch.position_of("0/0")) == ({"1/3": "1/2"}, "1/2", "0/0")
    assert [epoch.is_occupied(position) for position in ("1/2", "1/3", "0/3")] == [True, False, True]
    assert [epoch.is_live(worker) for worker in ("1/2", "1/3")] == [False, True]
    (load,) = epoch.migrations
    assert (load.worker, load.position, load.bytes, load.seconds) == ("1/3", "1/2", 1000, 1.0)
    assert load.copy_from in ("0/2", "2/2")
    for name in ("1/3", "rank:7"):
        got = client.program(job_id, 2, name)
        assert (got.worker, str(got.program.worker)) == ("1/3", "1/2")


def test_problems_are_errors_of_their_code(client: Any, job_id: str) -> None:
    """What the service refuses comes as the error of its code, with its words and what to do."""
    with pytest.raises(NotFoundError) as missing:
        client.current_epoch(job_id)
    assert (missing.value.code, missing.value.status) == ("not_found", 404)
    with pytest.raises(RequestRefusedError) as invalid:
        client.register_job(job_id, {"name": "nothing"})
    assert (invalid.value.code, invalid.value.status) == ("job_invalid", 422)
    client.register_job(job_id, DOCUMENT)
    client.report(job_id, FAILED, idempotency_key="one")
    with pytest.raises(EpochConflictError) as conflict:
        client.report(job_id, Event(kind="node_failed", nodes=("n07",), expected_epoch=1))
    assert (conflict.value.current_epoch, conflict.value.code) == (2, "epoch_conflict")
    with pytest.raises(AlreadyFailedError):
        client.report(job_id, Event(kind="node_failed", nodes=("n06",)))
    with pytest.raises(NotFailedError):
        client.report(job_id, Event(kind="node_recovered", nodes=("n07",)))
    with pytest.raises(RequestRefusedError) as reused:
        client.report(job_id, Event(kind="node_failed", nodes=("n07",)), idempotency_key="one")
    assert reused.value.code == "idempotency_key_reused"
    with pytest.raises(RequestRefusedError, match="n99") as unknown:
        client.report(job_id, Event(kind="node_failed", nodes=("n99",)))
    assert unknown.value.code == "unknown_node"
    with pytest.raises(EpochConflictError, match="has epoch 9 already"):
        client.current_epoch(job_id, after=9)
    with pytest.raises(NotFoundError):
        client.epoch(job_id, 9)
    with pytest.raises(NotFoundError):
        client.program(job_id, 9, "0/0")
    with pytest.raises(NotFoundError):
        client.acknowledge(job_id, 9, "0/0")


def test_an_epoch_without_a_plan_says_why(client: Any, job_id: str) -> None:
    """A lost stage: the epoch says so, and asking for a program raises the same."""
    client.register_job(job_id, DOCUMENT)
    epoch = client.report(job_id, Event(kind="node_failed", nodes=("n[02,06,10]",)))
    assert epoch.plan is None
    assert epoch.problem.code == "stage_lost"
    with pytest.raises(StageLostError, match=r"slots \[2\].*checkpoint"):
        epoch.require_plan()
    with pytest.raises(NoPlanError, match="has no plan"):
        client.program(job_id, epoch.epoch, "0/0")
    assert client.current_epoch(job_id, after=1) == epoch


def test_what_is_known_is_not_sent_again(client: Any, job_id: str) -> None:
    """Answers are kept by their tags; the service says that nothing changed, and the same comes out."""
    client.register_job(job_id, DOCUMENT)
    first, again = client.current_epoch(job_id), client.current_epoch(job_id)
    assert first == again
    assert client.core.cache.get(f"/v1/jobs/{job_id}/epochs/current") is not None
    assert client.program(job_id, 1, "0/0") == client.program(job_id, 1, "0/0")


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("current_epoch", ("a/b",)),
        ("current_epoch", ("..",)),
        ("current_epoch", ("",)),
        ("current_epoch", ("j" * 129,)),
        ("epoch", ("j", 0)),
        ("epoch", ("j", 2**31)),
        ("program", ("j", 1, "0/../0")),
        ("program", ("j", 1, "rank:x")),
        ("program", ("j", 1, "00/1")),
        ("acknowledge", ("j", 1, "0")),
        ("register_job", ("j", {"a": float("nan")})),
        ("register_job", ("j", {"a": object()})),
    ],
)
def test_what_cannot_be_sent_is_refused_here(kind: str, method: str, arguments: tuple[Any, ...]) -> None:
    """Nothing is sent: nobody listens there."""
    with connected(kind, "http://127.0.0.1:9") as client, pytest.raises(ArgumentError):
        getattr(client, method)(*arguments)


def test_numbers_out_of_range_are_refused_here(kind: str) -> None:
    """Epochs, waits, iterations and idempotency keys."""
    with connected(kind, "http://127.0.0.1:9") as client:
        for wait_s in (-1, float("nan"), float("inf")):
            with pytest.raises(ArgumentError, match="wait_s"):
                client.current_epoch("j", after=1, wait_s=wait_s)
        with pytest.raises(ArgumentError, match="epoch is -1"):
            client.current_epoch("j", after=-1)
        with pytest.raises(ArgumentError, match="iteration"):
            client.acknowledge("j", 1, "0/0", iteration=-1)
        with pytest.raises(ArgumentError, match="idempotency key"):
            client.report("j", Event(kind="node_failed", nodes=("n1",)), idempotency_key="a b")


@pytest.mark.parametrize(
    "url",
    ["", "replan:8080", "ftp://replan", "http://", "http://u:w@replan", "http://replan/?a=b", "http://replan:99999"],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    """Before anything is sent, and without the word after the user in the message."""
    with pytest.raises(ArgumentError), connected("sync", url):
        pass


def test_keys_are_checked_and_not_shown(server: Server, kind: str) -> None:
    """A key with a line break would end the header; a good one stands in no text of the client."""
    with pytest.raises(ArgumentError) as refused, connected(kind, url_of(server), api_key="rpk_a\r\nX: y"):
        pass
    assert "rpk_a" not in str(refused.value)
    with connected(kind, url_of(server), api_key="rpk_secret") as client:
        assert "rpk_secret" not in repr(client) + repr(client.core)


def test_limits_out_of_range_are_refused(kind: str) -> None:
    """Times and sizes of the client."""
    for options in (
        {"attempt_s": 0},
        {"attempt_s": 9, "total_s": 8},
        {"total_s": float("inf")},
        {"max_answer_bytes": 0},
    ):
        with pytest.raises(ArgumentError), connected(kind, "http://127.0.0.1:9", **options):
            pass


def test_a_closed_client_says_so(server: Server, kind: str) -> None:
    """Closed twice without harm; used after that it raises."""
    with connected(kind, url_of(server)) as client:
        client.close()
        client.close()
        with pytest.raises(ClosedError):
            client.current_epoch("j")


def test_threads_share_a_client(server: Server) -> None:
    """Eight threads ask and acknowledge at once, while a ninth waits for the epoch that the test reports."""
    job_id = "threads"
    with connected("sync", url_of(server)) as client, ThreadPoolExecutor(9) as pool:
        client.register_job(job_id, DOCUMENT)
        waiting = pool.submit(client.current_epoch, job_id, after=1, wait_s=60)

        def work(worker: str) -> tuple[str, str]:
            for iteration in range(5):
                got = client.program(job_id, 1, worker)
                client.acknowledge(job_id, 1, worker, iteration=iteration)
            return str(got.program.worker), got.plan_id

        workers = [f"{pipeline}/{slot}" for pipeline in range(3) for slot in range(4)]
        done = list(pool.map(work, workers))
        assert [worker for worker, _ in done] == workers
        assert len({plan_id for _, plan_id in done}) == 1
        assert (client.acknowledgements(job_id, 1).missing, client.acknowledgements(job_id, 1).from_iteration) == (
            (),
            4,
        )
        assert client.report(job_id, FAILED) == waiting.result(60)


FORKING = """
import os, sys
from replan_client.client import Client
from replan_client.errors import ClosedError
from replan_client.watching import EpochWatcher
client = Client(sys.argv[1])
watcher = EpochWatcher(client, "forked")
child = os.fork()
if child == 0:
    codes = 0
    for call in (lambda: client.current_epoch("forked"), lambda: watcher.wait_newer(0, 60)):
        try:
            call()
        except ClosedError as error:
            codes += "forked" in error.message
    os._exit(codes)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
watcher.close()
print(status)
"""


def test_a_forked_process_makes_its_own(server: Server) -> None:
    """Connections and threads stay with the process that made them; the child is told instead of waiting for ever."""
    command = [sys.executable, "-c", FORKING, url_of(server)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "2\n"
