"""Comparing with undisturbed training: nothing that differs passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replan_client.operation import Worker
from replan_client.torch.demo.errors import DemoFailedError, TrainingDiffersError
from replan_client.torch.demo.messages import Completed, Trained
from replan_client.torch.demo.verdict import Verdict, judge

ONES = np.ones((2, 2))
REFERENCE = Trained(completed=2, parameters={"0.w": ONES, "1.w": -4 * ONES}, losses=({(0, 0): 3.0}, {(0, 0): 2.0}))


def completed(iteration: int, loss: float) -> Completed:
    """An iteration of a worker."""
    return Completed(iteration=iteration, epoch=1, position=Worker(0, 0), losses={(0, 0): loss}, events=())


def trained(**parameters: Any) -> Trained:
    """A worker that came to the end."""
    return Trained(completed=2, parameters={f"{name[1:]}.w": value for name, value in parameters.items()})


def found(*workers: Trained, loss: float = 2.0) -> Verdict:
    """The verdict on some workers."""
    return judge(REFERENCE, workers, [completed(0, 3.0), completed(1, loss)], tolerance=1e-5)


def test_equal_is_equal() -> None:
    """Whoever came too late to hold a state does not count."""
    late = Trained(completed=None, parameters={})
    verdict = found(trained(_0=ONES), trained(_1=-4 * ONES), late)
    assert verdict == Verdict(parameters=0.0, losses=0.0, tolerance=1e-5, num_workers=2)
    verdict.require_equal()


def test_one_element_of_one_worker_is_enough() -> None:
    """Relative to the largest element of its parameter: 0.001 of 4."""
    wrong = -4 * ONES
    wrong[1, 0] += 0.001
    verdict = found(trained(_0=ONES, _1=-4 * ONES), trained(_1=wrong))
    assert verdict.parameters == pytest.approx(0.00025)
    with pytest.raises(TrainingDiffersError, match=r"parameters differ by 2\.5e-04"):
        verdict.require_equal()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_equal(value: float) -> None:
    """Though it is not larger than the tolerance."""
    assert not found(trained(_0=ONES, _1=value * ONES)).is_equal
    assert not found(trained(_0=ONES, _1=-4 * ONES), loss=value).is_equal


def test_a_loss_is_enough() -> None:
    """Also of an iteration that was given up."""
    verdict = found(trained(_0=ONES, _1=-4 * ONES), loss=2.0002)
    assert (verdict.parameters, verdict.is_equal) == (0.0, False)


def test_every_parameter_has_to_be_there() -> None:
    """What nobody holds is not compared, and not passed over."""
    with pytest.raises(DemoFailedError, match=r"nobody holds 1\.w"):
        found(trained(_0=ONES))
