"""torchft: the lighthouse's status page as failure events.

Source: ``/status`` of the lighthouse of torchft 0.2.0 (what its dashboard shows), read from a running one. It is a piece of
HTML: the quorum's id and size; for each member of the newest quorum its id, step, addresses and world size, marked
``recovering`` where its step is behind; and for everyone who ever sent a heartbeat the age of the last, marked ``old`` past the
lighthouse's time-out (5 s by default).

A member is a whole *replica group*: that is what torchft loses and gets back. Its id is ``<name><number>:<uuid>``, with a new
UUID after each restart; torchft itself reads the number at the end of the name as the group's, and so is it read here. With
``G`` groups, ``G`` = the job's GPUs by the groups' world size, group ``g`` is pipelines ``g D/G`` to ``(g+1) D/G - 1`` of the
job's ``D``: groups are the outermost data parallelism.

- A group with a fresh heartbeat that is in the newest quorum and not behind is in service.
- One without a fresh heartbeat is failed.
- One that beats but is not in the quorum, or still copies what it missed, is on its way: what is known stays.
- Without a quorum (the lighthouse has just started) nothing is known: no events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from api.adapters.errors import ReportError
from api.adapters.verdicts import Verdict, worker_events
from planner.errors import DocumentLimitError
from planner.failure_state import FailureEvent, FailureState
from planner.job import Job
from planner.operation import Worker

MAX_BYTES = 16 * 2**20
"""Longest page read, 16 MiB; a group takes about 700 bytes, and each of its restarts 100 more."""

SOURCE = "the lighthouse's status"

_TOKEN = re.compile(r"<(/?)([a-z][a-z0-9]*)([^<>]*)>|([^<>]+)")
_CLASS = re.compile(r'class="([^"]*)"')
_QUORUM = re.compile(r"Current quorum_id: ([0-9]{1,19})")
_SIZE = re.compile(r"Num participants: ([0-9]{1,9})")
_WORLD_SIZE = re.compile(r"World size: ([0-9]{1,9})")
_HEARTBEAT = re.compile(r"(.{1,1000}): seen [0-9]{1,20}(?:\.[0-9]{1,20})?s ago")
_GROUP = re.compile(r"(?:[^:]*?[^:0-9])?([0-9]{1,9})(?::.*)?")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(slots=True)
class _Member:
    """A member of the newest quorum."""

    line: int
    is_recovering: bool
    replica: str | None = None
    world_size: int | None = None


@dataclass(slots=True)
class _Page:
    """What stands on the page."""

    has_id: bool = False
    last_tag: str = ""
    num_members: int | None = None
    members: list[_Member] = field(default_factory=list)
    heartbeats: dict[str, bool] = field(default_factory=dict)
    """Whether a replica's last heartbeat is fresh."""


def torchft_events(text: str, job: Job, state: FailureState) -> tuple[FailureEvent, ...]:
    """Events that a lighthouse's status page gives for a job: of workers, whole pipelines at a time.

    Parameters
    ----------
    text
        What ``GET /status`` answers.
    job
        The job.
    state
        What is known to be down.

    Raises
    ------
    ReportError
        If the page is malformed or cut short, its groups do not fit the job, or none of them beats.
    DocumentLimitError
        If it is longer than :data:`MAX_BYTES`.

    Examples
    --------
    Of four replica groups of a job with four pipelines, ``replica_2`` has an old heartbeat: one ``node_failed`` event of workers
    2/0, 2/1 and so on.
    """
    if len(text) > MAX_BYTES:
        raise DocumentLimitError(f"{SOURCE} has {len(text)} characters; expected at most {MAX_BYTES}")
    page = _read_page(text)
    if not page.members:
        return ()
    num_groups = _num_groups(page, job)
    beating = {_group(replica, num_groups) for replica, is_fresh in page.heartbeats.items() if is_fresh}
    in_quorum = {
        _group(member.replica, num_groups)
        for member in page.members
        if member.replica is not None and page.heartbeats.get(member.replica, False) and not member.is_recovering
    }
    per_group = job.num_pipelines // num_groups
    verdicts: dict[Worker, Verdict] = {}
    for pipeline in range(job.num_pipelines):
        group = pipeline // per_group
        verdict = Verdict.IN_SERVICE if group in in_quorum else Verdict.KEEP
        verdicts |= dict.fromkeys(
            (Worker(pipeline, slot) for slot in range(job.num_slots)), verdict if group in beating else Verdict.FAILED
        )
    return worker_events(job, state, verdicts, source=SOURCE)


def _read_page(text: str) -> _Page:
    page = _Page()
    tag, classes = "", frozenset[str]()
    for line, name, attributes, words in _tokens(text):
        if name:
            match = _CLASS.search(attributes)
            page.last_tag = tag = name
            classes = frozenset(match[1].split()) if match is not None else frozenset[str]()
            if name == "div" and "member" in classes:
                page.members.append(_Member(line, "recovering" in classes))
        elif tag == "li" and "heartbeat" in classes:
            _read_heartbeat(page, words, "old" not in classes, line)
        else:
            _read_words(page, tag, words, line)
    if not page.has_id:
        raise ReportError(f"{SOURCE} has no quorum id; expected what a torchft lighthouse answers at /status")
    if (page.num_members or 0) != len(page.members) or page.last_tag != "/ul":
        raise ReportError(
            f"{SOURCE} announces {page.num_members or 0} participants, lists {len(page.members)} and ends with "
            f"<{page.last_tag}>; expected all of them and </ul>: it is cut short"
        )
    return page


def _tokens(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, name (with ``/`` where a tag ends) and attributes of each tag, or the words of each text."""
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ReportError(f"{SOURCE}, line {line}: malformed HTML at {text[position : position + 40]!r}")
        yield line, (match[1] or "") + (match[2] or ""), match[3] or "", " ".join((match[4] or "").split())
        line += text.count("\n", position, match.end())
        position = match.end()


def _read_heartbeat(page: _Page, words: str, is_fresh: bool, line: int) -> None:
    match = _HEARTBEAT.fullmatch(words)
    if match is None:
        raise ReportError(f"{SOURCE}, line {line}: heartbeat {words[:80]!r}; expected '<replica>: seen <seconds>s ago'")
    if match[1] in page.heartbeats:
        raise ReportError(f"{SOURCE}, line {line}: two heartbeats of {match[1][:80]!r}; expected one")
    page.heartbeats[match[1]] = is_fresh


def _read_words(page: _Page, tag: str, words: str, line: int) -> None:
    member = page.members[-1] if page.members else None
    if (match := _SIZE.fullmatch(words)) is not None:
        page.num_members = int(match[1])
    elif member is None:
        page.has_id = page.has_id or _QUORUM.fullmatch(words) is not None
    elif tag == "b":
        if member.replica is not None or not 1 <= len(words) <= 1000:
            raise ReportError(
                f"{SOURCE}, line {line}: a member has the id {words[:80]!r}; expected one of 1 to 1000 characters"
            )
        member.replica = words
    elif (match := _WORLD_SIZE.fullmatch(words)) is not None:
        member.world_size = int(match[1])


def _num_groups(page: _Page, job: Job) -> int:
    """``G``: replica groups of the job, from the members' world size."""
    for member in page.members:
        if member.replica is None or not member.world_size:
            raise ReportError(
                f"{SOURCE}, line {member.line}: a member has the id {member.replica} and the world size {member.world_size}; "
                "expected both"
            )
    sizes = sorted({member.world_size for member in page.members if member.world_size})
    num_gpus = job.layout.worker_gpus.size
    num_groups = num_gpus // sizes[0]
    if len(sizes) > 1 or num_groups * sizes[0] != num_gpus or num_groups == 0 or job.num_pipelines % num_groups:
        raise ReportError(
            f"{SOURCE}: the replica groups have world size {' and '.join(map(str, sizes[:4]))}; job {job.name!r} has "
            f"{num_gpus} GPUs in {job.num_pipelines} pipelines; expected {num_gpus // job.num_pipelines} or a multiple that "
            "divides them evenly"
        )
    return num_groups


def _group(replica: str, num_groups: int) -> int:
    """Number of a replica's group: the one at the end of its name."""
    match = None if _UUID.fullmatch(replica) else _GROUP.fullmatch(replica)
    if match is None:
        raise ReportError(
            f"{SOURCE}: replica {replica[:80]!r} has no number; expected a name such as replica_3 and its UUID",
            hint="give torchft's Manager a replica_id that ends in the number of the replica group",
        )
    if int(match[1]) >= num_groups:
        raise ReportError(f"{SOURCE}: replica {replica[:80]!r} is group {match[1]}; expected 0 to {num_groups - 1}")
    return int(match[1])
