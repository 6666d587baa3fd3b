"""From which iteration live workers go on, and who copies from whom: one pure function of what all have published.

A *version* of a state is the number of iterations that have been completed in it: version 0 is that at the start, and
iteration ``i`` makes version ``i + 1`` of version ``i``. ``docs/decisions/training-through-failures.md`` tells why workers that
keep two versions always find one that every slot has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from replan_client.errors import ProgramFormatError
from replan_client.operation import Worker, parse_worker
from replan_client.torch.training_errors import MemberRecordError, StateLostError

T = TypeVar("T")
MAX_RECORD_BYTES = 64 * 1024
"""Longest record of a member that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """State of some stages that a process has.

    Parameters
    ----------
    stages
        The stages, ascending, at least one.
    versions
        Versions of it that are there, whole; ascending.
    is_initial
        Whether the process made its only version itself, as everybody does at the start of the job.
    """

    stages: tuple[int, ...]
    versions: tuple[int, ...]
    is_initial: bool = False


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
    is_loaded
        Whether its program computes anything.
    held
        States that it has: of its stages, and of those it ran until now where it moves.
    """

    name: str
    incarnation: int
    position: Worker
    stages: tuple[int, ...]
    is_loaded: bool
    held: tuple[Held, ...]

    def to_bytes(self) -> bytes:
        """JSON form, as published."""
        return json.dumps(
            {
                "name": self.name,
                "incarnation": self.incarnation,
                "position": str(self.position),
                "stages": self.stages,
                "is_loaded": self.is_loaded,
                "held": [[held.stages, held.versions, held.is_initial] for held in self.held],
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
            if set(document) != set(cls.__dataclass_fields__):
                raise ValueError(sorted(document))
            return cls(
                name=_of_type(document["name"], str),
                incarnation=_of_type(document["incarnation"], int),
                position=parse_worker(document["position"]),
                stages=_ascending(document["stages"], least=1),
                is_loaded=_of_type(document["is_loaded"], bool),
                held=tuple(
                    Held(
                        stages=_ascending(stages, least=1),
                        versions=_ascending(versions, least=0),
                        is_initial=_of_type(is_initial, bool),
                    )
                    for stages, versions, is_initial in document["held"]
                ),
            )
        except (ValueError, TypeError, RecursionError, ProgramFormatError) as error:
            raise MemberRecordError(
                f"a member's record cannot be read: {content[:200]!r}",
                hint="workers of one job run one version of RePlan",
            ) from error


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
        Who has to be sent it. Each donor holds it, or received it in an earlier one; a donor that moves may receive another
        slot's state. All workers go through the copies in this order, so nobody waits for ever.
    """

    version: int
    copies: tuple[Copy, ...]


def agree(members: Sequence[Member]) -> Decision:
    """The latest version that every slot has a live holder of, and a donor for each who lacks it.

    Donors are those that stay in the slot; where nobody stays who holds the version, those that move away. A state that a worker
    made itself at the start counts only where nobody got one from training: the lowest pipeline's is then everybody's, so that
    peers begin alike whatever their random numbers were.

    Parameters
    ----------
    members
        All live workers, in any order, each position once.

    Returns
    -------
    Decision
        The same for all who ask with the same members. Whoever has received gives on, so that the number of donors in a slot
        doubles from round to round.

    Raises
    ------
    StateLostError
        If no version is held in every slot.
    MemberRecordError
        If two members stand at one position, or two of one slot run different stages.

    Examples
    --------
    Slot 0 holds versions 4 and 5, slot 1 has a worker with 3 and 4 and a newcomer: all go on from 4, which the newcomer copies.
    """
    slots = _by_slot(members)
    holders = {slot: _holders(slot, inside[0].stages, members) for slot, inside in slots.items()}
    common = set.intersection(*(set(held) for held in holders.values()))
    if not common:
        raise _state_lost(slots, holders)
    version = max(common)
    rounds: list[tuple[int, Copy]] = []
    for slot, inside in slots.items():
        donors = list(holders[slot][version])
        receivers = [member.position for member in inside if member.position not in donors]
        number = 0
        while receivers:
            served = receivers[: len(donors)]
            rounds += [(number, Copy(donor=d, receiver=r)) for d, r in zip(donors, served, strict=False)]
            donors, receivers, number = donors + served, receivers[len(served) :], number + 1
    in_order = sorted(rounds, key=lambda entry: (entry[0], entry[1].receiver))
    return Decision(version=version, copies=tuple(copy for _, copy in in_order))


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


def _holders(slot: int, stages: tuple[int, ...], members: Sequence[Member]) -> dict[int, list[Worker]]:
    """Positions of those that hold each version of a slot's state and may give it on, by pipeline."""
    staying: dict[int, list[Worker]] = {}
    leaving: dict[int, list[Worker]] = {}
    initial: dict[int, list[Worker]] = {}
    for member in sorted(members, key=lambda member: member.position):
        is_here = member.position.slot == slot
        for held in member.held:
            if held.stages == stages and (is_here or not held.is_initial):
                kind = initial if held.is_initial else staying if is_here else leaving
                for version in held.versions:
                    kind.setdefault(version, []).append(member.position)
    return {version: positions[:1] for version, positions in initial.items()} | leaving | staying


def _state_lost(slots: dict[int, list[Member]], holders: dict[int, dict[int, list[Worker]]]) -> StateLostError:
    empty = [slot for slot, held in holders.items() if not held]
    if empty:
        stages = sorted({stage for slot in empty for stage in slots[slot][0].stages})
        what = f"no live worker of slots {empty} (stages {stages}) holds a state"
    else:
        shown = "; ".join(f"slot {slot}: {sorted(held)}" for slot, held in holders.items())
        what = f"the versions of the state that are left have none in common: {shown}"
    return StateLostError(what, hint="restart from a checkpoint")


def _of_type(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _ascending(numbers: object, *, least: int) -> tuple[int, ...]:
    """Distinct numbers from 0 on, at least so many."""
    read = tuple(_of_type(number, int) for number in _of_type(numbers, list))
    if len(read) < least or any(number < 0 for number in read) or list(read) != sorted(set(read)):
        raise ValueError(f"{numbers} do not ascend from 0")
    return read
