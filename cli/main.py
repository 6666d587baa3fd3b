"""Entry point of the ``replan`` command: commands, errors, signals and exit codes."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from cli.bench import bench
from cli.bounds import bounds
from cli.demo import demo
from cli.errors import ExitCode, show_error
from cli.export import export
from cli.keys import keys
from cli.plan import plan
from cli.precompute import precompute
from cli.program import program
from cli.replay import replay
from cli.serve import serve
from cli.service.jobs import jobs
from cli.service.report import report
from cli.show import show
from cli.simulate import simulate
from cli.store import store
from cli.trace import trace
from cli.validate import validate
from planner.errors import InputError, ReplanError

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""What standard output on a full or broken disk fails with; files that a command names have been told as such before."""


class _TerminatedError(BaseException):
    """SIGTERM arrived; unwinds the stack so that solver processes and temporary files are cleaned up."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="replan", prog_name="replan")
def cli() -> None:
    """Keep a large training job fast through failures.

    Plans how failed workers' microbatches are rerouted to their peers, proves how close the plan is to the best
    possible, and gives every worker the program it has to run.
    """


for _command in (
    plan,
    bounds,
    validate,
    replay,
    program,
    show,
    export,
    serve,
    precompute,
    store,
    keys,
    jobs,
    report,
    simulate,
    trace,
    bench,
    demo,
):
    cli.add_command(_command)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; errors are printed, never raised.

    Parameters
    ----------
    arguments
        What stands after ``replan``.
    """
    as_json = "--json" in arguments
    try:
        try:
            with cli.make_context("replan", list(arguments)) as context:
                result = cli.invoke(context)
        except click.exceptions.Exit as stop:
            result = stop.exit_code
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        return ExitCode.BROKEN_PIPE
    except (ReplanError, click.ClickException) as error:
        return show_error(error, as_json=as_json)
    except SystemExit as stop:
        # The web server ends a start that fails this way, having said why.
        return stop.code if isinstance(stop.code, int) else ExitCode.SERVICE
    except BaseException as error:
        stopped = _stopped_by(error)
        if stopped is not None:
            click.echo("replan: interrupted" if stopped is ExitCode.INTERRUPTED else "replan: terminated", err=True)
            return stopped
        if isinstance(error, OSError) and error.errno in _FULL:
            _give_up_output()
            return show_error(InputError(f"cannot write the output: {error.strerror}"), as_json=as_json)
        if os.environ.get("REPLAN_TRACEBACK"):
            traceback.print_exc()
        return show_error(error, as_json=as_json)
    return result if isinstance(result, int) else ExitCode.OK


def _give_up_output() -> None:
    # What is left in the buffer would fail once more when the interpreter flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stopped_by(error: BaseException) -> ExitCode | None:
    """Which signal an error comes from; compiled code wraps what interrupts it in errors of its own."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, KeyboardInterrupt | click.Abort):
            return ExitCode.INTERRUPTED
        if isinstance(link, _TerminatedError):
            return ExitCode.TERMINATED
        link = link.__cause__ or link.__context__
    return None


def main() -> NoReturn:
    """Run ``replan`` with the process's arguments and exit."""
    signal.signal(signal.SIGTERM, _terminate)
    _open_closed_streams()
    sys.exit(run(sys.argv[1:]))


def _open_closed_streams() -> None:
    """Stand the null device in for standard streams that were closed before the start.

    Python has ``None`` for them, and the next file that is opened would get their number, and whatever is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))


def _terminate(_signal: int, _frame: Any) -> NoReturn:
    raise _TerminatedError


if __name__ == "__main__":
    main()
