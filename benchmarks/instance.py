"""One instance of a suite, and the hash by which a change of its generator is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.problem import Problem
from solver_models.wire import problem_to_wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A problem with a name, and what others reached on it.

    Parameters
    ----------
    name
        Unique within its suite.
    problem
        What is to be solved.
    published_ns
        Period that somebody else published for it, in nanoseconds; ``None`` where nobody has.
    published_by
        Who.
    job
        Document of the job that the problem is of, for whole commands; ``None`` for a problem of no job.
    failed_nodes
        What ``replan plan --fail`` is given for it.
    """

    name: str
    problem: Problem
    published_ns: int | None = None
    published_by: str = ""
    job: Mapping[str, Any] | None = None
    failed_nodes: str = ""

    @property
    def num_operations(self) -> int:
        """Operations of a schedule that splits every backward."""
        return self.problem.num_operations

    def sha256(self) -> str:
        """Hash of the problem alone: 64 hex digits."""
        text = json.dumps(problem_to_wire(self.problem), separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()
