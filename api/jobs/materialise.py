"""What a solver process does to give an epoch's workers their programs: put its template onto them, check all, write all.

The relabelling that the epoch was answered with is given, not chosen anew, so that every server, today's and next year's, makes
the same programs of the same epoch.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from planner.failures import FailureSet
from planner.formats.job_file import job_from_document
from planner.formats.packed_plan import unpack_plan
from planner.formats.plan_file import dump_plan
from planner.formats.relabelling_file import relabelling_from_document
from planner.instantiation import apply
from planner.lowering import lower
from planner.operation import Worker, parse_worker
from planner.plan import Plan
from planner.program_text import compress_programs, render_programs

HANDLER = b"materialise"
"""Name of :func:`answer_materialise` in a request."""

_LEVEL = 5
_WorkerText = Annotated[str, Field(max_length=24)]


class MaterialiseRequest(BaseModel):
    """An epoch, for whoever makes its programs.

    ``empty`` are the positions where nobody stands, ``speeds_ppm`` the slow ones, ``moved`` maps workers to the positions where
    they stand, ``relabelling`` is that of :mod:`planner.formats.relabelling_file`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    failed_nodes: list[str]
    empty: list[_WorkerText]
    speeds_ppm: dict[_WorkerText, int]
    moved: dict[_WorkerText, _WorkerText]
    relabelling: dict[str, list[list[int]]]

    def message(self, document: bytes, template: bytes) -> list[bytes]:
        """The request to a solver process: the job's JSON and the packed template go with it."""
        return [HANDLER, document, template, self.model_dump_json().encode()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialised:
    """An epoch's checked plan and programs.

    Parameters
    ----------
    plan_id
        Id of the plan.
    plan
        The plan file, gzip.
    workers_of_ranks
        Live worker, by its home, ``pipeline/slot``, that each global rank belongs to, as JSON keys.
    programs
        Program of each live worker by its home, JSON in gzip: that of the position where it stands.
    """

    plan_id: str
    plan: bytes
    workers_of_ranks: dict[str, str]
    programs: dict[str, bytes]


def answer_materialise(parts: list[bytes]) -> list[bytes]:
    """Make an epoch's plan and programs.

    Parameters
    ----------
    parts
        The job's document, the packed template, and a :class:`MaterialiseRequest`.

    Returns
    -------
    list[bytes]
        What :func:`read_materialised` reads.

    Raises
    ------
    ReplanError
        If the template is damaged, does not fit, or the plan made of it fails a check.
    """
    job = job_from_document(json.loads(parts[0]))
    request = MaterialiseRequest.model_validate_json(parts[2])
    empty = frozenset(parse_worker(text) for text in request.empty)
    relabelling = relabelling_from_document(
        request.relabelling, num_pipelines=job.num_pipelines, num_slots=job.num_slots, dead=empty
    )
    failures = FailureSet(
        nodes=tuple(request.failed_nodes),
        workers=tuple(sorted(empty)),
        dead=empty,
        speeds_ppm={parse_worker(text): speed for text, speed in request.speeds_ppm.items()},
    )
    moved = {parse_worker(worker): parse_worker(position) for worker, position in request.moved.items()}
    plan = _with_moved_ranks(apply(unpack_plan(parts[1]), job, failures, relabelling), moved)
    homes = {position: worker for worker, position in moved.items()}
    ranks = _workers_of_ranks(plan, homes)
    answer = [
        plan.plan_id.encode("ascii"),
        gzip.compress(dump_plan(plan), _LEVEL, mtime=0),
        json.dumps(ranks, separators=(",", ":")).encode(),
    ]
    programs = compress_programs(render_programs(lower(plan.problem, plan.schedule), plan.plan_id))
    for position, program in programs.items():
        answer += [str(homes.get(position, position)).encode("ascii"), program]
    return answer


def read_materialised(parts: list[bytes]) -> Materialised:
    """Read what :func:`answer_materialise` answered."""
    plan_id, plan, ranks, *programs = parts
    names = (name.decode("ascii") for name in programs[::2])
    return Materialised(
        plan_id=plan_id.decode("ascii"),
        plan=plan,
        workers_of_ranks=json.loads(ranks),
        programs=dict(zip(names, programs[1::2], strict=True)),
    )


def _with_moved_ranks(plan: Plan, moved: dict[Worker, Worker]) -> Plan:
    """The plan with the ranks that stand at each position, not those of the layout; left positions get the failed ranks."""
    if not moved:
        return plan
    ranks, slots = list(plan.worker_ranks), plan.problem.num_slots
    homes = set(moved)
    left, failed = sorted(homes - set(moved.values())), sorted(set(moved.values()) - homes)
    for worker, position in [*moved.items(), *zip(failed, left, strict=True)]:
        ranks[position.pipeline * slots + position.slot] = plan.worker_ranks[worker.pipeline * slots + worker.slot]
    return replace(plan, worker_ranks=tuple(ranks))


def _workers_of_ranks(plan: Plan, homes: dict[Worker, Worker]) -> dict[str, str]:
    """Live worker of each rank, by its home."""
    found: dict[str, str] = {}
    for index, text in enumerate(plan.worker_ranks):
        position = plan.schedule.worker_at(index)
        if position in plan.problem.dead:
            continue
        for part in text.split(","):
            first, _, last = part.partition("-")
            worker = str(homes.get(position, position))
            found |= {str(rank): worker for rank in range(int(first), int(last or first) + 1)}
    return found
