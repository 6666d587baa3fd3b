"""What is known of a tensor before it comes: its shape and its type of elements."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Shape and type of elements of a tensor that a worker will receive.

    Parameters
    ----------
    shape
        Size of each dimension, at least 0.
    dtype
        Type of the elements.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{list(self.shape)} {str(self.dtype).removeprefix('torch.')}"

    def empty(self, device: torch.device | str = "cpu") -> torch.Tensor:
        """A tensor of this kind, its elements not set."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape and type of a tensor."""
    return TensorSpec(shape=tuple(tensor.shape), dtype=tensor.dtype)
