"""From which iteration live workers go on, and who copies from whom: one pure function of what all have published.

A *version* of a state is the number of iterations that have been completed in it: version 0 is that at the start, and
iteration ``i`` makes version ``i + 1`` of version ``i``. ``docs/decisions/training-through-failures.md`` tells why workers that
keep two versions always find one that every slot has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from replan_client.errors import ProgramFormatError
from replan_client.operation import Worker, parse_worker
from replan_client.torch.training_errors import MemberRecordError, StateLostError

MAX_RECORD_BYTES = 64 * 1024
"""Longest record of a member that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What one worker tells the others before they go on together.

    Parameters
    ----------
    name
        The worker by its home, ``pipeline/slot``.
    incarnation
        Number of the process among all that ran under this name, from 1 on.
    position
        Where it stands in the epoch's plan.
    stages
        The stages it runs there, ascending.
    versions
        Versions of these stages' state that it holds whole, ascending; empty for a newcomer.
    is_initial
        Whether it made its only version itself, as everybody does at the start of the job: peers then take that of one of them.
    is_loaded
        Whether its program computes anything.
    """

    name: str
    incarnation: int
    position: Worker
    stages: tuple[int, ...]
    versions: tuple[int, ...]
    is_initial: bool
    is_loaded: bool

    def to_bytes(self) -> bytes:
        """JSON form, as published."""
        return json.dumps(
            {
                "name": self.name,
                "incarnation": self.incarnation,
                "position": str(self.position),
                "stages": self.stages,
                "versions": self.versions,
                "is_initial": self.is_initial,
                "is_loaded": self.is_loaded,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Member:
        """Read the JSON form.

        Raises
        ------
        MemberRecordError
            If it is anything else.
        """
        if len(content) > MAX_RECORD_BYTES:
            raise MemberRecordError(f"a member's record has {len(content)} bytes; expected at most {MAX_RECORD_BYTES}")
        try:
            document = json.loads(content)
            member = cls(**document | {"position": parse_worker(document["position"])})
        except (ValueError, TypeError, KeyError, RecursionError, ProgramFormatError) as error:
            raise MemberRecordError(
                f"a member's record cannot be read: {content[:200]!r}",
                hint="workers of one job run one version of RePlan",
            ) from error
        stages, versions = _ascending(member.stages, content), _ascending(member.versions, content)
        flags = (member.is_initial, member.is_loaded)
        is_sound = isinstance(member.name, str) and type(member.incarnation) is int and set(map(type, flags)) == {bool}
        if not is_sound or not stages:
            raise MemberRecordError(f"a member's record has fields of another type: {content[:200]!r}")
        return cls(
            name=member.name,
            incarnation=member.incarnation,
            position=member.position,
            stages=stages,
            versions=versions,
            is_initial=member.is_initial,
            is_loaded=member.is_loaded,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A position that copies the agreed version of its state from a peer."""

    donor: Worker
    receiver: Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What live workers agreed on.

    Parameters
    ----------
    version
        The version that all go on from, so also the number of the next iteration.
    copies
        Who has to be sent it, ordered by receiver; each donor holds it, and never receives.
    """

    version: int
    copies: tuple[Copy, ...]


def agree(members: Sequence[Member]) -> Decision:
    """The latest version that every slot has a live holder of, and a donor for each who lacks it.

    A state that a worker made itself at the start counts only where nobody in its slot got one from training: the lowest
    pipeline's is then everybody's, so that peers begin alike whatever their random numbers were.

    Parameters
    ----------
    members
        All live workers, in any order, each position once.

    Returns
    -------
    Decision
        The same for all who ask with the same members. Donors of a slot serve its receivers in turn.

    Raises
    ------
    StateLostError
        If no version is held in every slot.
    MemberRecordError
        If two members stand at one position, or two of one slot run different stages.

    Examples
    --------
    Slot 0 holds versions 4 and 5, slot 1 has a worker with 3 and 4 and a newcomer: all go on from 4, the newcomer copies it.
    """
    slots = _by_slot(members)
    holders = {slot: _holders(members) for slot, members in slots.items()}
    common = set.intersection(*(set(held) for held in holders.values()))
    if not common:
        raise _state_lost(slots, holders)
    version = max(common)
    copies = []
    for slot, inside in slots.items():
        donors = holders[slot][version]
        receivers = [member.position for member in inside if member.position not in donors]
        copies += [Copy(donor=donors[i % len(donors)], receiver=receiver) for i, receiver in enumerate(receivers)]
    return Decision(version=version, copies=tuple(sorted(copies, key=lambda copy: copy.receiver)))


def _by_slot(members: Sequence[Member]) -> dict[int, list[Member]]:
    """Members of each slot by pipeline."""
    slots: dict[int, list[Member]] = {}
    for member in sorted(members, key=lambda member: member.position):
        inside = slots.setdefault(member.position.slot, [])
        for other in inside[-1:]:
            if other.position == member.position:
                raise MemberRecordError(f"{other.name} and {member.name} both stand at {member.position}")
            if other.stages != member.stages:
                raise MemberRecordError(
                    f"{other.position} runs stages {other.stages}, its peer {member.position} stages {member.stages}"
                )
        inside.append(member)
    return dict(sorted(slots.items()))


def _holders(members: Sequence[Member]) -> dict[int, list[Worker]]:
    """Positions of one slot that hold each version and may give it on, by pipeline."""
    trained: dict[int, list[Worker]] = {}
    initial: dict[int, list[Worker]] = {}
    for member in members:
        for version in member.versions:
            (initial if member.is_initial else trained).setdefault(version, []).append(member.position)
    return {version: positions[:1] for version, positions in initial.items()} | trained


def _state_lost(slots: dict[int, list[Member]], holders: dict[int, dict[int, list[Worker]]]) -> StateLostError:
    empty = [slot for slot, held in holders.items() if not held]
    if empty:
        stages = sorted({stage for slot in empty for stage in slots[slot][0].stages})
        what = f"no live worker of slots {empty} (stages {stages}) holds a state"
    else:
        shown = "; ".join(f"slot {slot}: {sorted(held)}" for slot, held in holders.items())
        what = f"the versions of the state that are left have none in common: {shown}"
    return StateLostError(what, hint="restart from a checkpoint")


def _ascending(numbers: object, content: bytes) -> tuple[int, ...]:
    if not isinstance(numbers, list) or any(type(number) is not int or number < 0 for number in numbers):
        raise MemberRecordError(f"a member's record has something else than lists of numbers: {content[:200]!r}")
    if sorted(set(numbers)) != numbers:
        raise MemberRecordError(f"a member's record has numbers that do not ascend: {content[:200]!r}")
    return tuple(numbers)
