"""Failure keys, and the canonical problem that stands for all failure sets with the same key.

Peers hold the same parameters, and no cost or constraint depends on *which* pipeline a worker belongs to: permuting the
workers of a slot maps pairs of different workers onto pairs of different workers, so durations, transfers, links and
memory stay as they were. So a plan need only be made once for each key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from planner.errors import FailureSetError
from planner.operation import Worker
from planner.problem import FULL_SPEED_PPM, Problem

_COUNT = r"(?:0|[1-9][0-9]{0,8})"
_DEGRADED = rf"{_COUNT}@[1-9][0-9]{{0,5}}"
_KEY = re.compile(rf"({_COUNT}(?:,{_COUNT})*)(?:;({_DEGRADED}(?:,{_DEGRADED})*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKey:
    """What a plan is keyed by: how many workers of each slot are dead, and how slow the degraded ones are.

    Text form: the dead counts, ``0,0,1,0``; where workers are degraded followed by ``;`` and one ``slot@ppm`` for each, by
    slot and then by speed: ``0,0,1,0;0@500000,3@700000``. ``str`` and :func:`parse_failure_key` are each other's inverse.

    Parameters
    ----------
    dead
        Dead workers of each of the ``P`` slots, each at least 0.
    degraded
        For each slot the speeds of its degraded workers in parts per million, 1 to 999,999, ascending.

    Raises
    ------
    FailureSetError
        If the two differ in length or hold values out of range or order.
    """

    dead: tuple[int, ...]
    degraded: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.dead or len(self.dead) != len(self.degraded):
            raise FailureSetError(
                f"a failure key counts {len(self.dead)} slots and lists speeds for {len(self.degraded)}; "
                "expected the same number, at least one"
            )
        if min(self.dead) < 0:
            raise FailureSetError(f"a failure key has dead counts {self.dead[:16]}; expected each at least 0")
        for slot, speeds in enumerate(self.degraded):
            if list(speeds) != sorted(speeds) or any(not 0 < speed < FULL_SPEED_PPM for speed in speeds):
                raise FailureSetError(
                    f"a failure key has speeds {speeds[:16]} in slot {slot}; "
                    f"expected 1 to {FULL_SPEED_PPM - 1} ppm, ascending"
                )

    def __str__(self) -> str:
        dead = ",".join(map(str, self.dead))
        degraded = ",".join(f"{slot}@{speed}" for slot, speeds in enumerate(self.degraded) for speed in speeds)
        return f"{dead};{degraded}" if degraded else dead

    @property
    def num_slots(self) -> int:
        """``P``, the number of slots."""
        return len(self.dead)


def parse_failure_key(text: str) -> FailureKey:
    """Read a failure key's text form.

    Raises
    ------
    FailureSetError
        If ``text`` is anything but the exact text form.

    Examples
    --------
    >>> parse_failure_key("0,0,1,0;3@700000").dead
    (0, 0, 1, 0)
    """
    match = _KEY.fullmatch(text)
    if match is None:
        raise FailureSetError(
            f"failure key {text[:80]!r} cannot be read; expected counts such as 0,0,1,0 and, for degraded workers, "
            "slot@ppm such as 0,0,1,0;3@700000"
        )
    dead = tuple(int(word) for word in match[1].split(","))
    degraded: list[list[int]] = [[] for _ in dead]
    for word in (match[2] or "").split(",") if match[2] else ():
        slot, speed = (int(number) for number in word.split("@"))
        if slot >= len(dead):
            raise FailureSetError(f"failure key {text[:80]!r} names slot {slot}; expected 0..{len(dead) - 1}")
        degraded[slot].append(speed)
    key = FailureKey(dead=dead, degraded=tuple(map(tuple, degraded)))
    if str(key) != text:
        raise FailureSetError(
            f"failure key {text[:80]!r} lists degraded workers out of order; expected {str(key)[:80]!r}"
        )
    return key


def failure_key(problem: Problem) -> FailureKey:
    """Count a problem's dead workers and list its degraded ones' speeds, slot by slot.

    Examples
    --------
    For workers 1/2 dead and 0/3 at 700,000 ppm of four slots the key is ``0,0,1,0;3@700000``.
    """
    dead = [0] * problem.num_slots
    degraded: list[list[int]] = [[] for _ in dead]
    for worker in problem.dead:
        dead[worker.slot] += 1
    for worker, speed in problem.speeds_ppm.items():
        degraded[worker.slot].append(speed)
    return FailureKey(dead=tuple(dead), degraded=tuple(tuple(sorted(speeds)) for speeds in degraded))


def canonical_problem(problem: Problem) -> Problem:
    """The canonical problem of a problem's failure key; equal for all failure sets with the same key."""
    return problem_for_key(problem, failure_key(problem))


def problem_for_key(problem: Problem, key: FailureKey) -> Problem:
    """The job of ``problem`` with the failures of ``key`` in their canonical places; its own failures are set aside.

    As many dead workers as every slot has fill whole pipelines, the first ones. Of the others the dead come first, slots
    ascending, then the degraded, slots and speeds ascending. Number ``i`` of them stands in pipeline ``i mod D'`` of the ``D'``
    that are left, or the next one after it (cyclically) whose worker of that slot is still healthy. So they lie along a
    diagonal, in distinct pipelines as long as there are enough of these.

    Raises
    ------
    FailureSetError
        If the key has another number of slots, or more failures in a slot than there are pipelines.

    Examples
    --------
    With three pipelines, key ``1,0,2,1`` puts the dead workers at 0/0, 1/2, 2/2 and, wrapping, 0/3. Key ``1,1,2,1`` fills
    pipeline 0 and puts the one that is left at 1/2.
    """
    num_pipelines = problem.num_pipelines
    if key.num_slots != problem.num_slots:
        raise FailureSetError(f"failure key {key} counts {key.num_slots} slots; expected {problem.num_slots}")
    for slot, (count, speeds) in enumerate(zip(key.dead, key.degraded, strict=True)):
        if count + len(speeds) > num_pipelines:
            raise FailureSetError(
                f"failure key {key} has {count} dead and {len(speeds)} degraded workers in slot {slot}; "
                f"expected at most {num_pipelines} together"
            )
    num_emptied = min(key.dead)
    num_left = max(1, num_pipelines - num_emptied)
    dead = {Worker(pipeline, slot) for pipeline in range(num_emptied) for slot in range(key.num_slots)}
    speeds_ppm: dict[Worker, int] = {}
    placed = 0

    def next_worker(slot: int) -> Worker:
        nonlocal placed
        index = placed % num_left
        while (worker := Worker(num_emptied + index, slot)) in dead or worker in speeds_ppm:
            index = (index + 1) % num_left
        placed += 1
        return worker

    for slot, count in enumerate(key.dead):
        for _ in range(count - num_emptied):
            dead.add(next_worker(slot))
    for slot, speeds in enumerate(key.degraded):
        for speed in speeds:
            speeds_ppm[next_worker(slot)] = speed
    return replace(problem, dead=frozenset(dead), speeds_ppm=speeds_ppm)
