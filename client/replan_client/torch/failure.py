"""What the trained code raised in one worker: the same code would raise it in its peers too, so it ends training for all.

A dead process or device is worked around. An error of the modules, the data or the callbacks is not: the microbatches would go
to a peer, which meets the same, and so on until nobody is left and the last one's end looks like a loss of nodes.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass

import torch
from torch.distributed import DistError

from replan_client.errors import ClientError
from replan_client.torch.errors import ExecutorError, LinkBrokenError
from replan_client.torch.training_errors import MemberRecordError, StateFormatError

MAX_FAILURE_BYTES = 8 * 1024
"""Longest form of a failure that is read."""
_MOST_LETTERS = 600
_DEVICE_ASSERT = 710
"""CUDA's code of an assertion in a kernel, such as an index out of range: the code's fault, not the device's."""
_NOT_THE_CODE = ("torch", "replan_client")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailure:
    """What a worker's code raised.

    Parameters
    ----------
    worker
        The worker by its home, ``pipeline/slot``.
    iteration
        Iteration that it ran or reported; ``None`` before its first one.
    error
        Class and message of the error, on one line.
    place
        File, line and function of the code that was in it, where there is one.
    """

    worker: str
    iteration: int | None
    error: str
    place: str | None

    @classmethod
    def of(cls, worker: str, iteration: int | None, error: BaseException) -> WorkerFailure:
        """The failure that an error stands for; long and unprintable messages are cut."""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return cls(worker=worker, iteration=iteration, error=_printable(text), place=_place_of(error))

    def __str__(self) -> str:
        when = "before its first iteration" if self.iteration is None else f"in iteration {self.iteration}"
        place = "" if self.place is None else f" ({self.place})"
        return f"worker {self.worker} failed {when}: {self.error}{place}"

    def to_bytes(self) -> bytes:
        """JSON form, as published."""
        return json.dumps([self.worker, self.iteration, self.error, self.place]).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> WorkerFailure:
        """Read the JSON form.

        Raises
        ------
        MemberRecordError
            If it is anything else.
        """
        try:
            if len(content) > MAX_FAILURE_BYTES:
                raise ValueError(f"{len(content)} bytes")
            worker, iteration, what, place = json.loads(content)
            is_sound = isinstance(worker, str) and isinstance(what, str) and isinstance(place, str | None)
            if not is_sound or not (iteration is None or type(iteration) is int):
                raise ValueError("other fields")
        except (ValueError, TypeError, RecursionError) as error:
            raise MemberRecordError(
                f"how training ended cannot be read: {content[:100]!r}",
                hint="workers of one job run one version of RePlan",
            ) from error
        return cls(
            worker=_printable(worker),
            iteration=iteration,
            error=_printable(what),
            place=None if place is None else _printable(place),
        )


def is_of_the_code(error: Exception) -> bool:
    """Whether whoever runs the same code would meet the same error.

    So it is with what modules, data and callbacks raise, and with modules that cannot be run as planned. Not with errors of the
    protocol, of the store or the service, nor with faults of a device.
    """
    if isinstance(error, ClientError):
        return isinstance(error, ExecutorError | StateFormatError) and not isinstance(error, LinkBrokenError)
    if isinstance(error, torch.AcceleratorError):
        return getattr(error, "error_code", None) == _DEVICE_ASSERT
    return not isinstance(error, DistError)


def _place_of(error: BaseException) -> str | None:
    """Innermost place in code that is neither this package's nor PyTorch's."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_THE_CODE:
            return _printable(f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}")
    return None


def _printable(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[: _MOST_LETTERS + 1])
    return shown if len(shown) <= _MOST_LETTERS else f"{shown[: _MOST_LETTERS - 3]}..."
