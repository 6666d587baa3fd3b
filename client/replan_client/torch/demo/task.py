"""The training of a scenario, as workers, the undisturbed run and the profiler are told of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from replan_client.torch.demo.model import CONTEXT, build_stage, loss_fn
from replan_client.torch.demo.scenario import Scenario
from replan_client.torch.demo.text import encode, write_text
from replan_client.torch.training import Training
from replan_client.torch.training_result import IterationReport

_LEARNING_RATE = 3e-3
_EPSILON = 1e-5
"""As large models take it. With less, Adam makes whole steps of gradients that are hardly more than float32's rounding."""


def make_training(
    scenario: Scenario,
    *,
    on_iteration: Callable[[IterationReport], None] | None = None,
    on_forward: Callable[[], None] | None = None,
    dropout_seed: int | None = None,
) -> Training:
    """What is trained.

    Parameters
    ----------
    scenario
        Sizes and seeds.
    on_iteration
        Called after each iteration.
    on_forward
        Called in the middle of each F.
    dropout_seed
        Another seed of dropout; ``None``: the scenario's.
    """
    dtype = getattr(torch, scenario.precision)

    def build(stage: int) -> nn.Module:
        module = build_stage(stage, scenario.num_slots, seed=scenario.seed, dtype=dtype)
        if on_forward is not None:
            module.register_forward_hook(lambda *_: on_forward())
        return module

    def data(iteration: int, pipeline: int, microbatch: int) -> tuple[torch.Tensor, torch.Tensor]:
        text = write_text(scenario.seed, iteration, pipeline, microbatch, length=2 * CONTEXT + 2)
        letters = encode(text).view(2, CONTEXT + 1)
        return letters[:, :-1], letters[:, 1:]

    return Training(
        build_stage=build,
        make_optimizer=lambda module: torch.optim.AdamW(module.parameters(), lr=_LEARNING_RATE, eps=_EPSILON),
        data=data,
        loss_fn=loss_fn,
        num_iterations=scenario.num_iterations,
        on_iteration=on_iteration,
        seed=scenario.seed if dropout_seed is None else dropout_seed,
    )
