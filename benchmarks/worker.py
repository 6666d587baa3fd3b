"""Child side of :mod:`benchmarks.pool`: ``python -m benchmarks.worker FD``, one task a line in, one measurement a line out.

A task is a JSON object on standard input, an answer one on the descriptor given: what solvers print goes to standard error. The
process ends with its parent, whatever it is doing.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict

from benchmarks.contenders import contenders
from benchmarks.instance import Instance
from benchmarks.measure import measure
from benchmarks.suites import SUITES
from solver_models.child_main import die_with_parent
from solver_models.result import SolveOptions
from solver_models.warm_up import warm_up

READY = {"ready": True}


def main(answers: int, parent: int) -> None:
    """Load all that is compiled, then answer tasks until standard input ends."""
    die_with_parent(parent)
    os.dup2(2, 1)
    warm_up()
    known = contenders()
    _answer(answers, READY)
    for line in sys.stdin:
        task = json.loads(line)
        names = ("deadline_s", "target_gap", "seed", "deterministic", "workers")
        options = SolveOptions(**{name: task[name] for name in names})
        found = measure(_instances(task["suite"])[task["instance"]], known[task["solver"]], options)
        _answer(answers, asdict(found))


@functools.lru_cache(maxsize=1)
def _instances(suite: str) -> Mapping[str, Instance]:
    """A suite's instances by name; the last suite's are kept, since tasks come suite by suite."""
    return {instance.name: instance for instance in SUITES[suite].make()}


def _answer(descriptor: int, document: Mapping[str, object]) -> None:
    data = json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
