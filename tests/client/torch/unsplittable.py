"""An operator whose backward cannot be run twice, as splitting it would."""

from __future__ import annotations

import torch


class Once(torch.autograd.Function):
    """A product whose backward frees what it needs, so that it runs only once."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Product of both."""
        ctx.kept = [value, weight]
        return value @ weight

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both gradients; what they need is gone afterwards."""
        weight, value = ctx.kept.pop(), ctx.kept.pop()
        return gradient @ weight.T, value.T @ gradient
