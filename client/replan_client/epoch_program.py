"""Programs as they are fetched: compared with everything that is known about who asked, and for what."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from replan_client.answers import Answer
from replan_client.documents import Fields, parse_object
from replan_client.epochs import Epoch
from replan_client.errors import ProgramFormatError, ProgramMismatchError
from replan_client.memory import KnownEpochs
from replan_client.operation import Worker
from replan_client.program import AllReduce, Program, Receive, Send, program_from_dict

_PLAN_ID = re.compile(r"[0-9a-f]{64}")
_TAG = re.compile(r'(?:W/)?"([0-9a-f]{64})/([^"]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochProgram:
    """What one worker runs in one epoch.

    Parameters
    ----------
    job_id, epoch
        The epoch.
    plan_id
        sha256 of the content of the plan that it carries out, 64 hexadecimal digits; the same for all workers of the epoch.
    worker
        The worker by its home, ``pipeline/slot``; ``program.worker`` is the position where it stands.
    program
        The instructions.
    sha256
        Hash of the program's JSON as :meth:`Program.to_dict` gives it, keys sorted, without spaces.
    """

    job_id: str
    epoch: int
    plan_id: str
    worker: str
    program: Program = field(repr=False)
    sha256: str


def verify_program(answer: Answer, epoch: Epoch, name: str, known: KnownEpochs) -> EpochProgram:
    """Read a program and check that it is the one asked for, as far as that can be known.

    The tag of the answer names the worker and the plan; both and the position have to agree with the program and the epoch. All
    programs of an epoch carry out one plan, and no plan serves epochs in which others are down or the period is another. A
    program of another epoch mostly also names a position where nobody stands.

    Parameters
    ----------
    answer
        What the service answered.
    epoch
        The epoch.
    name
        The worker that it was asked for, ``3/5`` or ``rank:17``.
    known
        Epochs and plans of before.

    Raises
    ------
    ProgramFormatError
        If an instruction cannot be read.
    ProgramMismatchError
        If it is another worker's, epoch's or plan's.
    AnswerError
        If it is no program at all.
    """
    what = f"the program of worker {name} in epoch {epoch.epoch} of job {epoch.job!r}"
    document = parse_object(answer.body, what)
    plan_id = Fields(document, what).text("plan_id")
    if _PLAN_ID.fullmatch(plan_id) is None:
        raise _mismatch(f"{what} names the plan {plan_id[:80]!r}; expected 64 hexadecimal digits")
    try:
        program = program_from_dict({key: value for key, value in document.items() if key != "plan_id"})
    except ProgramFormatError as error:
        raise ProgramFormatError(
            f"{what} cannot be read: {error.message}",
            hint="service and client may be of versions that do not go together",
        ) from error
    home = _check_tag(answer, plan_id, name, what)
    _check_positions(program, epoch, home, what)
    _check_plan(plan_id, epoch, known, what)
    known.add_plan(epoch, plan_id)
    content = json.dumps(program.to_dict(), sort_keys=True, separators=(",", ":")).encode()
    return EpochProgram(
        job_id=epoch.job,
        epoch=epoch.epoch,
        plan_id=plan_id,
        worker=home,
        program=program,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _check_tag(answer: Answer, plan_id: str, name: str, what: str) -> str:
    """Home of the worker that the answer is for."""
    tag = answer.headers.get("etag", "")
    match = _TAG.fullmatch(tag)
    if match is None:
        raise _mismatch(f"{what} comes with the tag {tag[:100]!r}; expected one that names its plan and worker")
    if match[1] != plan_id:
        raise _mismatch(f"{what} names the plan {plan_id}, its tag {match[1]}")
    if match[2] != name and not name.startswith("rank:"):
        raise _mismatch(f"{what} comes with the tag of worker {match[2][:40]!r}")
    return match[2]


def _check_positions(program: Program, epoch: Epoch, home: str, what: str) -> None:
    if not epoch.is_live(home):
        raise _mismatch(f"{what} is for worker {home}, which is down in that epoch")
    position = epoch.position_of(home)
    if str(program.worker) != position:
        raise _mismatch(f"{what} is for position {program.worker}; the worker stands at {position}")
    for number, instruction in enumerate(program.instructions):
        if isinstance(instruction, Receive):
            peers = [instruction.source]
        elif isinstance(instruction, Send):
            peers = [instruction.target]
        elif isinstance(instruction, AllReduce):
            peers = [Worker(pipeline, program.worker.slot) for pipeline in instruction.pipelines]
            if program.worker not in peers:
                raise _mismatch(f"{what} has the instruction {number}, {instruction}, without the worker itself")
        else:
            continue
        empty = [str(peer) for peer in peers if not epoch.is_occupied(str(peer))]
        if empty:
            raise _mismatch(
                f"{what} has the instruction {number}, {instruction}; nobody stands at {empty[0]} in that epoch"
            )


def _check_plan(plan_id: str, epoch: Epoch, known: KnownEpochs, what: str) -> None:
    expected = known.plan_id(epoch)
    if expected is not None and expected != plan_id:
        raise _mismatch(f"{what} carries out plan {plan_id}; other programs of that epoch carry out {expected}")
    other = known.epoch_of_plan(plan_id)
    if other is not None and _figures(other) != _figures(epoch):
        raise _mismatch(f"{what} carries out plan {plan_id}, which is that of epoch {other.epoch}")


def _figures(epoch: Epoch) -> tuple[frozenset[str], float | None]:
    """What two epochs of one plan have in common: positions where nobody stands, and the period."""
    positions = {*epoch.failed_workers, *epoch.moved, *epoch.moved.values()}
    empty = frozenset(position for position in positions if not epoch.is_occupied(position))
    return empty, None if epoch.plan is None else epoch.plan.period_us


def _mismatch(message: str) -> ProgramMismatchError:
    return ProgramMismatchError(
        message, hint="do not run it: ask again, and look for a cache or a proxy between client and service"
    )
