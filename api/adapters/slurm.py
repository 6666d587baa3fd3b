"""Slurm: ``sinfo``'s node states as failure events.

Source: sinfo(1) and its "NODE STATE CODES", master branch of SchedMD/slurm, and the output of Slurm 22.05. Read are lines of
``sinfo --noheader --Node --format '%N %T'``, a hostlist and a state, and every table of ``sinfo`` whose heading has the
columns NODELIST and STATE, in the long form of states or the short one. A node in several partitions stands there several times.

What states mean here:

- *In service*: the node runs a job or may. ``draining`` and ``failing`` nodes take no new job but still run the one they
  have: they are in service until they are ``drained`` or ``fail``.
- *Failed*: no job runs there, and none can.
- *Silent*: ``unknown``, what a controller says that has just started, and the suffix ``*``: the node does not answer, which is
  often over before Slurm calls it ``down`` (after SlurmdTimeout, 300 s by default). The caller says what a silent
  node is; ``down*`` and ``drained*`` are failed all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from api.adapters.errors import ReportError
from api.adapters.node_names import NodeNames
from api.adapters.verdicts import Verdict, node_events, record
from planner.errors import DocumentLimitError, HostlistError
from planner.failure_state import FailureEvent, FailureState
from planner.hostlist import MAX_HOSTS, expand_hostlist
from planner.job import Job

MAX_BYTES = 16 * 2**20
"""Longest report read, 16 MiB: one line a node takes 2 MiB for 65,536 nodes."""

MAX_NAMED = MAX_HOSTS
"""Most names in a report, repetitions in several partitions counted."""

SOURCE = "sinfo's output"

_IN_SERVICE = (
    "allocated alloc mixed mix idle completing comp draining drng failing failg "
    "planned plnd reserved resv perfctrs npc blocked"
)
_FAILED = (
    "down drained drain fail maint future futr inval reboot boot reboot_requested reboot_issued "
    "power_down pow_dn powering_down powered_down power_up pow_up powering_up"
)
_VERDICTS = dict.fromkeys(_IN_SERVICE.split(), Verdict.IN_SERVICE) | dict.fromkeys(_FAILED.split(), Verdict.FAILED)
_SILENT = frozenset(("unknown", "unk"))
_FAILED_SUFFIXES = frozenset("~#%^")
"""Powered off, powering up, powering down, reboot issued: nothing runs there, whatever the state's name."""
_STATE = re.compile(r"([a-z_]+)\+?([*~#!%$@^-]?)", re.IGNORECASE)


def slurm_events(
    text: str, job: Job, state: FailureState, *, silent: Verdict = Verdict.KEEP, missing: Verdict = Verdict.KEEP
) -> tuple[FailureEvent, ...]:
    """Events that a report of ``sinfo`` gives for a job.

    Parameters
    ----------
    text
        The report.
    job
        The job; nodes that it does not have are passed over.
    state
        What is known to be down.
    silent
        What a node is that does not answer Slurm.
    missing
        What a node of the job is that the report does not name; ``sinfo`` is often asked for some nodes only.

    Raises
    ------
    ReportError
        If the report is malformed, has a state unknown here for a node of the job, contradicts itself, names no node
        of the job, or leaves none of them.
    DocumentLimitError
        If it is longer than :data:`MAX_BYTES` or names more than :data:`MAX_NAMED` nodes.

    Examples
    --------
    Of the lines ``gpu[0001-0007] allocated`` and ``gpu0008 down*`` it is one ``node_failed`` event of gpu0008.
    """
    if len(text) > MAX_BYTES:
        raise DocumentLimitError(f"{SOURCE} has {len(text)} characters; expected at most {MAX_BYTES}")
    if text and not text.endswith("\n"):
        raise ReportError(f"{SOURCE} ends within a line: {text[-40:]!r}; expected whole lines, it is cut short")
    names = NodeNames(job.topology.nodes)
    verdicts: dict[str, Verdict] = {}
    num_named = 0
    for where, hostlist, word in _rows(text):
        try:
            hosts = expand_hostlist(hostlist)
        except HostlistError as error:
            raise ReportError(f"{where}: {error.message}", hint=error.hint) from error
        num_named += len(hosts)
        if num_named > MAX_NAMED:
            raise DocumentLimitError(f"{where}: {SOURCE} names more than {MAX_NAMED} nodes; ask for fewer partitions")
        found = [node for node in (names.find(host, where) for host in hosts) if node is not None]
        verdict = _verdict(word, silent, where, must_be_known=bool(found))
        for node in found:
            record(verdicts, node, verdict, where)
    return node_events(job, state, verdicts, missing=missing, source=SOURCE)


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Place, hostlist and state of each line, by the heading's columns where there is one."""
    columns: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{SOURCE}, line {number}"
        words = line.split()
        if not words:
            continue
        if "NODELIST" in words:
            columns = _columns(words, where)
        elif columns is not None:
            if len(words) <= max(columns):
                raise ReportError(f"{where} has {len(words)} columns; its heading has more: {line.strip()[:80]!r}")
            yield where, words[columns[0]], words[columns[1]]
        elif len(words) == 2:
            yield where, words[0], words[1]
        else:
            raise ReportError(
                f"{where} has {len(words)} columns; expected two, nodes and state: {line.strip()[:80]!r}",
                hint="make the report with: sinfo --noheader --Node --format '%N %T'",
            )


def _columns(words: list[str], where: str) -> tuple[int, int]:
    """Positions of the columns NODELIST and STATE; a REASON left of them, which holds blanks, would move them."""
    if words.count("NODELIST") != 1 or words.count("STATE") != 1:
        raise ReportError(f"{where}: the heading is {' '.join(words)[:80]!r}; expected NODELIST and STATE once each")
    columns = words.index("NODELIST"), words.index("STATE")
    if "REASON" in words and words.index("REASON") < max(columns):
        raise ReportError(f"{where}: column REASON stands before NODELIST or STATE; expected it last or not at all")
    return columns


def _verdict(word: str, silent: Verdict, where: str, *, must_be_known: bool) -> Verdict:
    match = _STATE.fullmatch(word)
    if match is None:
        raise ReportError(f"{where}: {word[:40]!r} is no node state; expected a word such as idle or down*")
    name, suffix = match[1].lower(), match[2]
    if suffix in _FAILED_SUFFIXES:
        return Verdict.FAILED
    if name in _SILENT:
        return silent
    verdict = _VERDICTS.get(name, silent)
    if must_be_known and name not in _VERDICTS:
        raise ReportError(
            f"{where}: node state {word[:40]!r} is not known here; expected one of sinfo(1)'s",
            hint="a state cut short comes from a narrow column: use --format '%N %T'",
        )
    return silent if suffix == "*" and verdict is Verdict.IN_SERVICE else verdict
