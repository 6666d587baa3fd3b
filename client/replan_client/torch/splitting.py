"""Whether a module's backward can be split into I and W: tried out, since nothing else tells."""

from __future__ import annotations

import copy

import torch
from torch import nn

from replan_client.torch.spec import TensorSpec
from replan_client.torch.stage import Stage
from replan_client.torch.volatile import undisturbed

_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Largest difference between the two, relative to the largest gradient; sums may be taken in another order."""

_COARSE = 0.05
"""The same for shorter types."""

_SEED = 1


def why_not_splittable(module: nn.Module, spec: TensorSpec, *, device: torch.device | str = "cpu") -> str | None:
    """What goes wrong where a module's backward is split; ``None`` where it can be.

    Runs a copy of the module with random numbers and compares I and W with the whole backward. The module itself, its gradients
    and the random state stay as they are.

    Parameters
    ----------
    module
        Module of any stage but the first, which has no input gradient to split off.
    spec
        What it takes; of floating point numbers.
    device
        Where the module is.
    """
    trial = copy.deepcopy(module)
    with torch.random.fork_rng([device] if torch.device(device).type == "cuda" else []):
        torch.manual_seed(_SEED)
        value = torch.randn(spec.shape, dtype=spec.dtype, device=device)
        try:
            with undisturbed({0: trial}):
                whole = _gradients(trial, value, split=False)
            halves = _gradients(trial, value, split=True)
        # A module may raise anything, and its backward too.
        except Exception as error:
            return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
    for name, expected in whole.items():
        found = halves[name]
        if (expected is None) != (found is None):
            return f"the gradient of {name} is {'not ' if found is None else ''}there where it is split, unlike where it is not"
        if expected is None or found is None:
            continue
        scale = float(expected.abs().max()) if expected.numel() else 0.0
        difference = float((expected - found).abs().max()) if expected.numel() else 0.0
        if not difference <= _TOLERANCES.get(expected.dtype, _COARSE) * scale:
            return f"the gradient of {name} differs by {difference:.3g}, its largest element is {scale:.3g}"
    return None


def _gradients(module: nn.Module, value: torch.Tensor, *, split: bool) -> dict[str, torch.Tensor | None]:
    """Gradients of the input and of all parameters, the output's gradient being a fixed random one."""
    # Neither the first nor the last of three stages.
    stage = Stage(1, 3, module)
    output = stage.forward((0, 0), value, seed=_SEED)
    torch.manual_seed(_SEED)
    gradient = torch.randn_like(output)
    if split:
        of_input = stage.input_grad((0, 0), gradient)
        stage.weight_grad((0, 0))
    else:
        of_input = stage.backward((0, 0), gradient)
    found = {f"parameter {name}": parameter.grad for name, parameter in module.named_parameters()}
    stage.drop()
    return found | {"the input": of_input}
