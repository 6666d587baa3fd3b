"""Bytes that stay alive, counted on the CPU."""

from __future__ import annotations

import gc

import pytest
import torch
from replan_client.torch.profiler_memory import CpuMeter, meter

from tests.client.torch.malloc import malloc_bytes

WIDTH = 256
TENSOR = 4 * WIDTH * WIDTH


def test_what_autograd_keeps_is_counted_once_and_parameters_never() -> None:
    """Linear keeps its input, tanh its result; the second linear keeps the same storage as tanh, and weights are older."""
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH))
    with meter(torch.device("cpu")) as counted:
        x = torch.randn(WIDTH, WIDTH)
        assert counted.held() == TENSOR
        y = model(x)
        # The input, tanh's result and y; what tanh was given is gone again, though it was there for a moment.
        assert counted.held() == 3 * TENSOR
        assert counted.peak() == 3 * TENSOR
        view = y.view(-1)[5:]
        del y
        assert counted.held() == 3 * TENSOR
        del view
        # The graph went with the last of y.
        assert counted.held() == TENSOR
        counted.reset_peak()
        del x
        assert (counted.held(), counted.peak()) == (0, TENSOR)


def test_gradients_that_are_there_already_are_not_counted() -> None:
    """A backward that adds to them leaves nothing behind; one that makes them does."""
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    x = torch.randn(WIDTH, WIDTH)
    with CpuMeter() as counted:
        model(x).sum().backward()
        assert counted.held() == TENSOR
        model(x).sum().backward()
        assert counted.held() == TENSOR
    with CpuMeter() as counted:
        model(x).sum().backward()
        assert counted.held() == 0


def test_what_an_operator_changes_in_place_is_not_new() -> None:
    """A tensor from before stays one from before, also when an operator returns it."""
    old = torch.zeros(WIDTH)
    with CpuMeter() as counted:
        again = old.add_(1)
        assert counted.held() == 0
        assert again is old


def test_the_count_is_what_malloc_has_given_out() -> None:
    """What the C library says is in use grows by what is said to be held, within 1 %, and falls by it."""
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(4))
    )
    for _ in range(2):
        model(torch.randn(WIDTH, WIDTH)).sum().backward()
    gc.collect()
    before = malloc_bytes()
    with CpuMeter() as counted:
        outputs = [model(torch.randn(WIDTH, WIDTH)).sum() for _ in range(8)]
        held, grown = counted.held(), malloc_bytes() - before
        # Of each: four inputs of a linear and four of a GELU. The last GELU's result went when it was summed.
        assert held == 8 * (8 * TENSOR + 4)
        assert grown == pytest.approx(held, rel=0.01)
        outputs.clear()
        assert counted.held() == 0
        assert malloc_bytes() - before < 0.01 * held
