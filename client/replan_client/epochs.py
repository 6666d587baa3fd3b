"""Epochs of a job as the service tells them: what is down, which plan is in force, who stands where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, cast

from replan_client.documents import Fields, parse_object
from replan_client.errors import AnswerError
from replan_client.problems import error_of

Cause: TypeAlias = Literal["registered", "event", "improved", "revised", "recovered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """The plan in force.

    Parameters
    ----------
    template
        sha256 of the template that it is made from, 64 hexadecimal digits.
    failure_key
        Failed and slow workers by slot that the template is kept under.
    status
        ``optimal`` or ``feasible``.
    period_us, bound_us
        Period and the proved lower bound on it, microseconds, not negative.
    gap
        ``period / bound - 1``; ``None`` where the bound is 0.
    throughput_kept
        Fault-free period over period; ``None`` where the period is 0.
    solver
        What found the schedule.
    """

    template: str
    failure_key: str
    status: str
    period_us: float
    bound_us: float
    gap: float | None
    throughput_kept: float | None
    solver: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochProblem:
    """Why an epoch has no plan: a stable code such as ``stage_lost``, what is wrong, and what to do (``None`` for nothing)."""

    code: str
    message: str
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One of the answers to the failures, and what it is expected to cost.

    Parameters
    ----------
    name
        The answer.
    available
        Whether it can be taken.
    reason
        Why it cannot, or what the figures rest on; ``None`` for nothing.
    period_us, one_time_s, lost_s, horizon_s
        Period that it leads to, microseconds; seconds before training goes on; seconds of fault-free training lost until the
        next event; seconds until that. ``None`` where not known.
    """

    name: str
    available: bool
    reason: str | None
    period_us: float | None
    one_time_s: float | None
    lost_s: float | None
    horizon_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A worker that takes a position when an epoch begins.

    Parameters
    ----------
    worker
        The worker, by its home, ``pipeline/slot``.
    position
        Where it stands from then on.
    copy_from
        Worker that holds what it has to load, by its home; ``None`` where only a checkpoint has it.
    bytes
        Parameters and optimizer state to load; 0 where the job does not say.
    seconds
        Time of that copy; ``None`` where the bandwidth is not known.
    """

    worker: str
    position: str
    copy_from: str | None
    bytes: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One epoch of a job.

    Parameters
    ----------
    job
        The job's id.
    epoch
        Its number, from 1 on; grows by 1 with each.
    revision
        Revision of the job that it is for, from 1 on.
    cause
        ``registered``, ``event``, ``improved``, ``revised`` or ``recovered``.
    failed_workers
        Workers that are down, by their homes.
    moved
        Position of every worker that stands elsewhere than at home.
    migrations
        Who takes a position when it begins, and what they have to load first.
    plan
        The plan in force; ``None`` where there is none.
    problem
        Why there is none; ``None`` where there is one.
    chosen
        The cheapest answer of the ladder; ``None`` where none helps.
    ladder
        Every answer with its expected cost.
    from_iteration
        Iteration from whose start it holds, where the report named one; ``None``: from the next that all workers agree on.
    body
        The whole JSON, also what this version does not know.
    """

    job: str
    epoch: int
    revision: int
    cause: Cause
    failed_workers: tuple[str, ...]
    moved: Mapping[str, str]
    migrations: tuple[Migration, ...]
    plan: EpochPlan | None
    problem: EpochProblem | None
    chosen: str | None
    ladder: tuple[Rung, ...]
    from_iteration: int | None
    body: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_bytes(cls, content: bytes, *, job: str, number: int | None = None) -> Self:
        """Read an epoch's JSON.

        Parameters
        ----------
        content
            The JSON.
        job
            Job that it was asked for.
        number
            Number that it was asked for; ``None`` for any.

        Raises
        ------
        AnswerError
            If it is no epoch, or of another job or number.
        """
        document = parse_object(content, "the epoch")
        fields = Fields(document, "the epoch")
        found = (fields.text("job"), fields.number("epoch", least=1))
        if found[0] != job or (number is not None and found[1] != number):
            expected = f"job {job!r}" if number is None else f"epoch {number} of job {job!r}"
            raise AnswerError(
                f"the answer is epoch {found[1]} of job {found[0]!r}; expected {expected}",
                hint="something between client and service mixes answers up: look for a proxy or a cache",
            )
        plan, problem = fields.object_or_none("plan"), fields.object_or_none("problem")
        if (plan is None) is (problem is None):
            raise AnswerError("the epoch has both a plan and a problem, or neither; expected one of them")
        return cls(
            job=found[0],
            epoch=found[1],
            revision=fields.number("revision", least=1),
            cause=cast("Cause", fields.text("cause")),
            failed_workers=fields.texts("failed_workers"),
            moved={m.text("worker"): m.text("position") for m in fields.objects("moved")},
            migrations=tuple(_migration(m) for m in fields.objects("migrations")),
            plan=None if plan is None else _plan(plan),
            problem=None if problem is None else _problem(problem),
            chosen=fields.text_or_none("chosen"),
            ladder=tuple(_rung(rung) for rung in fields.objects("ladder")),
            from_iteration=fields.number_or_none("from_iteration"),
            body=document,
        )

    def is_live(self, worker: str) -> bool:
        """Whether a worker, named by its home, runs in this epoch; one that the job does not have counts as live."""
        return worker not in self.failed_workers

    def position_of(self, worker: str) -> str:
        """Where a live worker, named by its home, stands; home where it did not move."""
        return self.moved.get(worker, worker)

    def is_occupied(self, position: str) -> bool:
        """Whether somebody stands at a position: whoever is at home there, live and not moved, or who moved there."""
        is_home = position not in self.failed_workers and position not in self.moved
        return is_home or position in self.moved.values()

    def require_plan(self) -> EpochPlan:
        """The plan in force.

        Raises
        ------
        StageLostError, NoPlanError, ProblemError
            By the problem's code, where there is none.
        """
        if self.plan is not None:
            return self.plan
        assert self.problem is not None
        message = f"epoch {self.epoch} of job {self.job!r} has no plan: {self.problem.message}"
        raise error_of(self.problem.code, message, hint=self.problem.hint)


def _plan(fields: Fields) -> EpochPlan:
    return EpochPlan(
        template=fields.text("template"),
        failure_key=fields.text("failure_key"),
        status=fields.text("status"),
        period_us=fields.real("period_us"),
        bound_us=fields.real("bound_us"),
        gap=fields.real_or_none("gap"),
        throughput_kept=fields.real_or_none("throughput_kept"),
        solver=fields.text("solver"),
    )


def _problem(fields: Fields) -> EpochProblem:
    return EpochProblem(code=fields.text("code"), message=fields.text("message"), hint=fields.text_or_none("hint"))


def _rung(fields: Fields) -> Rung:
    return Rung(
        name=fields.text("name"),
        available=fields.flag("available"),
        reason=fields.text_or_none("reason"),
        period_us=fields.real_or_none("period_us"),
        one_time_s=fields.real_or_none("one_time_s"),
        lost_s=fields.real_or_none("lost_s"),
        horizon_s=fields.real_or_none("horizon_s"),
    )


def _migration(fields: Fields) -> Migration:
    return Migration(
        worker=fields.text("from"),
        position=fields.text("to"),
        copy_from=fields.text_or_none("copy_from"),
        bytes=fields.number("bytes"),
        seconds=fields.real_or_none("seconds"),
    )
