"""What a worker tells the others of an error in the trained code."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.errors import NoPlanError, ServiceUnreachableError  # noqa: E402
from replan_client.torch.errors import LinkBrokenError, StageShapeError  # noqa: E402
from replan_client.torch.failure import MAX_FAILURE_BYTES, WorkerFailure, is_of_the_code  # noqa: E402
from replan_client.torch.training_errors import MemberRecordError, StateFormatError, StateLostError  # noqa: E402
from torch import nn  # noqa: E402


def device_error(code: int | None) -> Exception:
    """What PyTorch raises for an error of a device."""
    error = torch.AcceleratorError("CUDA error")
    if code is not None:
        error.error_code = code
    return error


@pytest.mark.parametrize(
    ("error", "is_codes"),
    [
        (ValueError("bad label"), True),
        (OSError("no space left"), True),
        (MemoryError(), True),
        (torch.OutOfMemoryError("out of memory"), True),
        (StageShapeError("another shape"), True),
        (StateFormatError("a peer runs another module"), True),
        (device_error(710), True),
        (device_error(214), False),
        (device_error(None), False),
        (LinkBrokenError("a peer left"), False),
        (StateLostError("nobody holds it"), False),
        (NoPlanError("no plan"), False),
        (ServiceUnreachableError("away"), False),
        (torch.distributed.DistNetworkError("the store is gone"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_errors_of_the_code_are_told_from_those_around_it(error: Exception, is_codes: bool) -> None:
    """What peers would meet too, running out of memory and asserting in a kernel among it; not what a node or a link does."""
    assert is_of_the_code(error) is is_codes


def failure_of(error: Exception) -> WorkerFailure:
    """Failure of an error that a module raises in its forward."""

    class Failing(nn.Module):
        def forward(self, _value: torch.Tensor) -> torch.Tensor:
            raise error

    try:
        Failing()(torch.ones(1))
    except Exception as raised:  # the one above
        return WorkerFailure.of("1/2", 7, raised)
    raise AssertionError


def test_the_place_is_that_of_the_trained_code() -> None:
    """File, line and function of the innermost code that is not PyTorch's, though PyTorch called it."""
    failure = failure_of(ValueError("bad\n  label"))
    assert (failure.worker, failure.iteration, failure.error) == ("1/2", 7, "ValueError: bad label")
    assert failure.place is not None
    assert failure.place.partition(":")[0] == __file__
    assert failure.place.endswith(" in forward")
    assert str(failure) == f"worker 1/2 failed in iteration 7: ValueError: bad label ({failure.place})"


def test_an_error_without_code_of_its_own_has_no_place() -> None:
    """The first iteration had not begun either."""
    failure = WorkerFailure.of("0/0", None, ValueError())
    assert str(failure) == "worker 0/0 failed before its first iteration: ValueError:"


def test_long_and_unprintable_messages_are_cut() -> None:
    """They end up in logs and terminals of all workers, and in the store."""
    failure = failure_of(ValueError("\x1b[31m" + "x" * 100_000))
    assert len(failure.error) == 600
    assert failure.error.startswith("ValueError: ?[31mxxx")
    assert failure.error.endswith("x...")
    assert len(failure.to_bytes()) <= MAX_FAILURE_BYTES


def test_the_published_form_reads_back() -> None:
    """With and without iteration and place."""
    for failure in (
        failure_of(ValueError("ä")),
        WorkerFailure(worker="0/0", iteration=None, error="E", place=None),
    ):
        assert WorkerFailure.from_bytes(failure.to_bytes()) == failure


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{}",
        b"null",
        b'["0/0", 1, "E"]',
        b'[0, 1, "E", null]',
        b'["0/0", true, "E", null]',
        b'["0/0", 1.5, "E", null]',
        b'["0/0", 1, null, null]',
        b'["0/0", 1, "E", 4]',
        b"[" * 9000,
        b'["0/0", 1, "' + b"E" * MAX_FAILURE_BYTES + b'", null]',
    ],
)
def test_what_is_no_failure_is_refused(content: bytes) -> None:
    """A store may hold anything."""
    with pytest.raises(MemberRecordError, match="how training ended cannot be read"):
        WorkerFailure.from_bytes(content)


def test_what_is_read_is_made_printable() -> None:
    """What stands in the store may have been written by anything."""
    read = WorkerFailure.from_bytes(b'["\\u001b0/0", 1, "\\u0007E", "\\u0000"]')
    assert (read.worker, read.error, read.place) == ("?0/0", "?E", "?")
