"""A small GPT cut into stages: the first embeds, the last tells the next letter, and each has a block.

No layer has a bias: the gradient of a key's bias is zero but for rounding, and Adam makes steps of any gradient, however small.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from replan_client.torch.demo.text import ALPHABET

WIDTH = 32
HEADS = 4
CONTEXT = 32
"""Letters of a sample."""
_DROPOUT = 0.1


class Embedding(nn.Module):
    """Letters and where they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Vectors ``(batch, context, width)`` of letters ``(batch, context)``."""
        vectors: torch.Tensor = self.letters(letters) + self.places.weight
        return vectors


class Block(nn.Module):
    """Attention to letters before, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH, bias=False)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.attended = nn.Linear(WIDTH, WIDTH, bias=False)
        self.layers = nn.Sequential(
            nn.LayerNorm(WIDTH, bias=False),
            nn.Linear(WIDTH, 4 * WIDTH, bias=False),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH, bias=False),
        )
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Vectors of the same shape."""
        heads = self.attention(self.attention_norm(value)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, content = heads.permute(2, 0, 3, 1, 4).unbind()
        found = functional.scaled_dot_product_attention(query, key, content, is_causal=True)
        value = value + self.dropout(self.attended(found.transpose(1, 2).flatten(2)))
        result: torch.Tensor = value + self.dropout(self.layers(value))
        return result


def build_stage(stage: int, num_stages: int, *, seed: int, dtype: torch.dtype) -> nn.Module:
    """Module of a stage, the same wherever it is built."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 * seed + stage)
        parts: list[nn.Module] = [Block()]
        if stage == 0:
            parts.insert(0, Embedding())
        if stage == num_stages - 1:
            parts += [nn.LayerNorm(WIDTH, bias=False), nn.Linear(WIDTH, len(ALPHABET), bias=False)]
        return nn.Sequential(*parts).to(dtype)


def loss_fn(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the next letters, in nats."""
    return functional.cross_entropy(output.flatten(0, 1), labels.flatten())
