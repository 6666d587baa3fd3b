"""nvidia-resiliency-ext: cycle info files as failure events.

Source: ``NVRxCycleInfo`` in ``nvrx_interface.proto`` and its writer, nvidia-resiliency-ext 0.7.0, and files that this
writer made. The launcher writes ``cycle_info.<job>.<attempt>.<cycle>``, JSON of that message, when a cycle (the time between
two restarts) begins, once more with ``cycle_end_time`` when it ends, and points ``cycle_info.<job>.current`` to the newest.

Read are ``active_nodes`` and ``standby_nodes`` (hostlists), ``active_ranks`` (form only: they are ranks of nodes, numbered anew
every cycle, and name nothing that lasts) and ``cycle_end_time``. Numbers may be written as text, as protobuf's JSON does
with 64 bits.

- An *active* node is in service. Every other node of the job is failed: a standby takes no part in this cycle.
- A cycle that has *ended* says nothing about the present: no events. The next one says who is left.
- Host names are cut at the first dot and padded to the longest number of their kind: ``n1`` and ``n10`` become
  ``n[01,10]``. So the number at the end of a name counts by its value.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.adapters.errors import ReportError
from api.adapters.node_names import NodeNames
from api.adapters.verdicts import Verdict, node_events, record
from planner.errors import HostlistError
from planner.failure_state import FailureEvent, FailureState
from planner.formats.documents import parse_document
from planner.hostlist import expand_hostlist
from planner.job import Job

MAX_BYTES = 4 * 2**20
"""Longest file read, 4 MiB: 65,536 nodes that share no range take 1."""

SOURCE = "the cycle info file"

_RANKS = re.compile(r"(?:[0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*)?")
_Number = Annotated[str, Field(pattern=r"^[0-9]{1,20}$")] | Annotated[int, Field(ge=0, lt=2**64)]


class _CycleInfo(BaseModel):
    """The message's fields; those of later versions are passed over."""

    model_config = ConfigDict(extra="ignore", strict=True)

    job_id: str
    attempt_index: _Number = 0
    cycle_number: _Number = 0
    cycle_start_time: str
    cycle_end_time: str = ""
    active_nodes: str
    standby_nodes: str = ""
    active_ranks: str = ""
    generation: _Number = 0


def nvrx_events(text: str, job: Job, state: FailureState) -> tuple[FailureEvent, ...]:
    """Events that a cycle info file gives for a job.

    Parameters
    ----------
    text
        The file, usually what ``cycle_info.<job>.current`` points to.
    job
        The job; nodes that it does not have are passed over.
    state
        What is known to be down.

    Raises
    ------
    ReportError
        If the file is malformed, contradicts itself, or has no active node that the job has.
    DocumentLimitError
        If it is longer than :data:`MAX_BYTES` or nested too deep.

    Examples
    --------
    With ``"active_nodes": "gpu[0001-0007]"`` of a job on gpu[0001-0008] it is one ``node_failed`` event of gpu0008.
    """
    document = parse_document(text, format="json", max_bytes=MAX_BYTES, error=ReportError)
    try:
        info = _CycleInfo.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"][:1])) or "the document"
        raise ReportError(
            f"{SOURCE}: {field}: {first['msg']}",
            hint="expected what nvidia-resiliency-ext 0.7 writes with cycle_info_dir set",
        ) from error
    if _RANKS.fullmatch(info.active_ranks) is None:
        raise ReportError(f"{SOURCE}: active_ranks is {info.active_ranks[:80]!r}; expected ranges such as 0-3,6")
    names = NodeNames(job.topology.nodes, padded=True)
    verdicts: dict[str, Verdict] = {}
    for field, verdict in (("active_nodes", Verdict.IN_SERVICE), ("standby_nodes", Verdict.FAILED)):
        where = f"{SOURCE}, {field}"
        for host in _hosts(getattr(info, field), where):
            node = names.find(host, where)
            if node is not None:
                record(verdicts, node, verdict, where)
    if info.cycle_end_time:
        return ()
    return node_events(job, state, verdicts, missing=Verdict.FAILED, source=SOURCE)


def _hosts(hostlist: str, where: str) -> tuple[str, ...]:
    if not hostlist:
        return ()
    try:
        return expand_hostlist(hostlist)
    except HostlistError as error:
        raise ReportError(f"{where}: {error.message}", hint=error.hint) from error
