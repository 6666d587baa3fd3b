"""Exit codes, and how errors are shown: one readable block, or one JSON object with ``--json``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import click

from planner import errors


class ExitCode(IntEnum):
    """Exit status of ``replan``; stable, so that scripts may compare."""

    OK = 0
    """Done; where a plan was asked for, there is one."""
    USAGE = 2
    """The command line itself is wrong: an unknown option, a missing argument, a value out of range."""
    INPUT = 3
    """A file or a failure set cannot be used, or a file cannot be read or written."""
    NO_PLAN = 4
    """The input is sound, but rerouting cannot answer it: ``stage_lost``, ``optimizer_shard_lost``, ``memory_too_small``."""
    INVALID_PLAN = 5
    """A plan is cut short, was edited, breaks a constraint or would deadlock."""
    SOLVER = 6
    """A solver is missing or crashed, and there is no plan without it."""
    SERVICE = 7
    """The service cannot start, cannot be reached, refuses the key, or its store cannot be used."""
    CONFLICT = 8
    """The job has moved on: another epoch is current than was expected, or the idempotency key was used before."""
    MISSING = 9
    """Something that the command needs is not installed."""
    TRAINING = 10
    """The demonstration broke off, or training through failures gave something else than the undisturbed run."""
    WORSE = 11
    """A comparison of benchmark results found a period that got worse, or a plan that is gone."""
    INTERNAL = 70
    """A bug in RePlan."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C (SIGINT)."""
    BROKEN_PIPE = 141
    """Whoever read the output closed it."""
    TERMINATED = 143
    """Stopped by SIGTERM."""


_EXIT_CODES: Mapping[type[errors.ReplanError], ExitCode] = {
    errors.InputError: ExitCode.INPUT,
    errors.OptionError: ExitCode.USAGE,
    errors.PlanFileError: ExitCode.INVALID_PLAN,
    errors.NoPlanError: ExitCode.NO_PLAN,
    errors.ScheduleError: ExitCode.INVALID_PLAN,
    errors.SolverError: ExitCode.SOLVER,
    errors.NotFoundError: ExitCode.INPUT,
    errors.StoreError: ExitCode.SERVICE,
    errors.ListenError: ExitCode.SERVICE,
    errors.ReplanError: ExitCode.INTERNAL,
}

_TITLES: Mapping[ExitCode, str] = {
    ExitCode.USAGE: "usage",
    ExitCode.INPUT: "input",
    ExitCode.NO_PLAN: "no plan",
    ExitCode.INVALID_PLAN: "invalid plan",
    ExitCode.SOLVER: "solver failure",
    ExitCode.SERVICE: "service",
    ExitCode.CONFLICT: "conflict",
    ExitCode.MISSING: "not installed",
    ExitCode.TRAINING: "training",
    ExitCode.WORSE: "worse",
    ExitCode.INTERNAL: "internal error",
}


class ServiceError(click.ClickException):
    """A service did not answer, or answered with a problem.

    Parameters
    ----------
    message
        What was wrong, for people.
    code
        Stable code: the service's own, ``service_unreachable`` or ``service_answer_invalid``.
    status
        HTTP status of the answer; ``None`` where there was none.
    hint
        What to do about it.
    """

    def __init__(self, message: str, *, code: str, status: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.hint = hint


class MissingExtraError(click.ClickException):
    """Something that a command needs is not installed; ``hint`` says how to install it."""

    code = "extra_missing"

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class TrainingError(click.ClickException):
    """The demonstration broke off, or found a difference; ``code`` is the client's."""

    def __init__(self, message: str, *, code: str, hint: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def _exit_code_of_service(error: ServiceError) -> ExitCode:
    """Status of the same error here, or else what the HTTP status says."""
    kinds: list[type[errors.ReplanError]] = [errors.ReplanError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
        if kind.code == error.code and kind.__module__ == errors.__name__ and error.status and error.status < 500:
            return _exit_code_of_kind(kind)
    if error.code in ("epoch_conflict", "idempotency_key_reused"):
        return ExitCode.CONFLICT
    is_request = error.status is not None and error.status < 500 and error.status not in (401, 403, 408, 429)
    return ExitCode.INPUT if is_request else ExitCode.SERVICE


def _exit_code_of_kind(kind: type[errors.ReplanError]) -> ExitCode:
    return next(_EXIT_CODES[base] for base in kind.__mro__ if base in _EXIT_CODES)


def exit_code_of(error: BaseException) -> ExitCode:
    """Exit status for an error; that of the closest class up the error tree."""
    if isinstance(error, ServiceError):
        return _exit_code_of_service(error)
    if isinstance(error, MissingExtraError | TrainingError):
        return ExitCode.MISSING if isinstance(error, MissingExtraError) else ExitCode.TRAINING
    for kind in type(error).__mro__:
        if issubclass(kind, errors.ReplanError) and kind in _EXIT_CODES:
            return _EXIT_CODES[kind]
    return ExitCode.USAGE if isinstance(error, click.UsageError) else ExitCode.INTERNAL


def error_document(error: BaseException) -> dict[str, Any]:
    """An error as plain JSON values: ``code`` is stable, ``detail`` is for people, ``hint`` says what to do or is null."""
    status = exit_code_of(error)
    if isinstance(error, errors.ReplanError | ServiceError | MissingExtraError | TrainingError):
        code, detail, hint = error.code, error.message, error.hint
    elif isinstance(error, click.ClickException):
        code, detail, hint = "usage", error.format_message(), _usage_hint(error)
    else:
        code, detail, hint = "internal", f"{type(error).__name__}: {error}", "set REPLAN_TRACEBACK=1 to see where"
    return {
        "type": f"urn:replan:problem:{code}",
        "title": _TITLES[status],
        "code": code,
        "detail": detail,
        "hint": hint,
        "exit_code": int(status),
    }


def show_error(error: BaseException, *, as_json: bool) -> ExitCode:
    """Print an error on standard error and return its exit status."""
    document = error_document(error)
    if as_json:
        text = json.dumps(document)
    else:
        text = f"replan: {document['title']} ({document['code']})\n  {_indented(document['detail'])}"
        if document["hint"]:
            text += f"\n  {_indented(document['hint'])}"
    with contextlib.suppress(OSError):  # the status tells it all the same where nothing can be printed
        click.echo(text, err=True)
    return exit_code_of(error)


def _indented(text: str) -> str:
    return text.rstrip().replace("\n", "\n  ")


def _usage_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return None if context is None else f"try '{context.command_path} --help'"
