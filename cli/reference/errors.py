"""Every error code: what it means, its HTTP status, its exit status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import replan_client.errors
import replan_client.torch.demo.errors
import replan_client.torch.errors
import replan_client.torch.profiler_errors
import replan_client.torch.training_errors
from replan_client.errors import ClientError

import api.adapters.errors
import api.errors
import benchmarks.errors
import planner.errors
import simulation.errors
from api.problems import STATUS_OF_ERROR
from cli.errors import ServiceError, exit_code_of
from cli.reference.markdown import code, head, plain, table
from planner.errors import ReplanError, SolverError, StoreError

_Kind = TypeVar("_Kind", bound=BaseException)
SERVER_MODULES = (planner.errors, api.errors, api.adapters.errors, simulation.errors, benchmarks.errors)
"""Modules that define errors of planner, service and command line."""
CLIENT_MODULES = (
    replan_client.errors,
    replan_client.torch.errors,
    replan_client.torch.training_errors,
    replan_client.torch.profiler_errors,
    replan_client.torch.demo.errors,
)
"""Modules that define errors of what a training job installs."""

_INTRODUCTION = (
    "Codes are stable: scripts may compare them. The service sends them in [problem documents](../api.md#errors), the command "
    "prints them in brackets or with `--json`, and ends with an [exit status](../cli.md#exit-status)."
)
_SERVER = (
    "## Planner, service and command line\n\n"
    "The exit status is that of a command that meets the error itself, or of one that is answered so where only the service has "
    "it. An answer with a status from 500 on ends a command with 7, whatever its code. Codes of HTTP itself, such as "
    "`route_not_found`, stand in [api.md](../api.md#errors), those of the command line alone, such as `usage`, in "
    "[cli.md](../cli.md#exit-status)."
)
_CLIENT = (
    "## Client\n\n"
    "Errors that `replan_client` raises in a training process. The service's own codes reach it as the classes that "
    "[its manual](../../client/README.md#what-it-promises) names."
)


def errors_page() -> str:
    """Text of the page."""
    server = table(
        ("code", "HTTP", "exit", "what it means"), sorted(map(_server_row, kinds(ReplanError, SERVER_MODULES)))
    )
    client = table(
        ("code", "class", "what it means"),
        sorted(
            (code(kind.code), code(kind.__name__), plain(kind.__doc__)) for kind in kinds(ClientError, CLIENT_MODULES)
        ),
    )
    return "\n".join([head("Error codes", _INTRODUCTION), f"{_SERVER}\n\n{server}\n", f"{_CLIENT}\n\n{client}\n"])


def kinds(root: type[_Kind], modules: tuple[object, ...]) -> Iterator[type[_Kind]]:
    """Classes of an error tree that these modules define, in no order to rely on."""
    names = {getattr(module, "__name__", "") for module in modules}
    if root.__module__ in names:
        yield root
    for child in root.__subclasses__():
        yield from kinds(child, modules)


def _server_row(kind: type[ReplanError]) -> tuple[str, str, str, str]:
    status = next(STATUS_OF_ERROR[base] for base in kind.__mro__ if base in STATUS_OF_ERROR)
    # Commands run solvers and open stores themselves too.
    is_met = kind.__module__ != api.errors.__name__ or issubclass(kind, SolverError | StoreError)
    error = kind("") if is_met else ServiceError("", code=kind.code, status=status)
    return code(kind.code), str(status), str(int(exit_code_of(error))), plain(kind.__doc__)
