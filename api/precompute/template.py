"""What a solver process does to make a template: a job and a failure key in, a packed plan and its figures out.

Like all of :mod:`api.planning` it knows no web and no store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from planner.failure_key import FailureKey, parse_failure_key, problem_for_key
from planner.failures import FailureSet
from planner.formats.job_file import job_from_document
from planner.formats.packed_plan import pack_plan
from planner.job import Job
from planner.plan import Plan
from solver_models.planning import Reference, make_plan
from solver_models.result import SolveOptions

HANDLER = b"template"
"""Name of :func:`answer_template` in a request."""

_Nanoseconds = Annotated[int, Field(ge=0)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ReferenceForm(_Form):
    """What a job's plans are compared with: :class:`solver_models.planning.Reference` on its way between processes."""

    fault_free_ns: _Nanoseconds
    baseline_1f1b_ns: _Nanoseconds


class TemplateRequest(_Form):
    """What a template is asked for with, beside the job's document."""

    failure_key: str
    deadline_s: float
    target_gap: float = 0.0
    seed: int = 0
    reference: ReferenceForm | None = None

    def message(self, document: bytes) -> list[bytes]:
        """The request to a solver process; ``document`` is the job's, JSON."""
        return [HANDLER, document, self.model_dump_json().encode()]


class TemplateFigures(_Form):
    """What whoever asked for a template needs to know of it without unpacking it.

    ``reference`` is what the plan was compared with, ``None`` where that was not all known; that of the fault-free template
    serves all the others.
    """

    period_ns: _Nanoseconds
    bound_ns: _Nanoseconds
    reference: ReferenceForm | None
    solver: str
    notes: tuple[str, ...]

    @property
    def gap(self) -> float | None:
        """Period over bound, less 1; ``None`` where the bound is 0."""
        return self.period_ns / self.bound_ns - 1 if self.bound_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAnswer:
    """A template as a solver process answers it: the packed plan and its figures."""

    content: bytes
    figures: TemplateFigures


def make_template(job: Job, key: FailureKey, options: SolveOptions, *, reference: Reference | None = None) -> Plan:
    """Plan the canonical problem of a failure key: validated, replayed, lowered and proved free of deadlock.

    Optimizer shards are taken as restored: whether they are is a matter of the real failures, not of the schedule.

    Parameters
    ----------
    job
        The job.
    key
        Failures of each slot.
    options
        Limits of the search.
    reference
        What the plan is compared with; ``None`` to work that out too, within the deadline.

    Raises
    ------
    FailureSetError
        If the key does not fit the job.
    NoPlanError
        If no plan can exist.
    """
    canonical = problem_for_key(job.problem(), key)
    failures = FailureSet(
        workers=tuple(sorted(canonical.dead)), dead=canonical.dead, speeds_ppm=dict(canonical.speeds_ppm)
    )
    return make_plan(job, failures, options, migrate=False, shards_restored=True, reference=reference)


def answer_template(parts: list[bytes]) -> list[bytes]:
    """Make a template.

    Parameters
    ----------
    parts
        The job's document, JSON, and a :class:`TemplateRequest`.

    Returns
    -------
    list[bytes]
        The packed plan and its :class:`TemplateFigures`; :func:`read_template` reads them.

    Raises
    ------
    ReplanError
        If the job, the key or the options are not sound, or there is no plan.
    """
    document: Any = json.loads(parts[0])
    request = TemplateRequest.model_validate_json(parts[1])
    known = request.reference
    reference = None if known is None else Reference(**known.model_dump())
    options = SolveOptions(deadline_s=request.deadline_s, target_gap=request.target_gap, seed=request.seed, workers=1)
    plan = make_template(
        job_from_document(document), parse_failure_key(request.failure_key), options, reference=reference
    )
    return [pack_plan(plan), figures_of(plan).model_dump_json().encode()]


def read_template(parts: list[bytes]) -> TemplateAnswer:
    """Read what :func:`answer_template` answered."""
    content, figures = parts
    return TemplateAnswer(content=content, figures=TemplateFigures.model_validate_json(figures))


def figures_of(plan: Plan) -> TemplateFigures:
    """Figures of a template."""
    reference = None
    if plan.baseline_1f1b_ns is not None:
        reference = ReferenceForm(fault_free_ns=plan.fault_free_ns, baseline_1f1b_ns=plan.baseline_1f1b_ns)
    return TemplateFigures(
        period_ns=plan.period_ns,
        bound_ns=plan.bound_ns,
        reference=reference,
        solver=plan.solver,
        notes=plan.notes,
    )
