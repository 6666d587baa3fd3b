"""Text to learn from: words drawn by chance, the same for the same microbatch wherever it is run."""

from __future__ import annotations

import random

import torch

ALPHABET = " abcdefghijklmnopqrstuvwxyz"
_WORDS = (
    *("a", "the", "one", "no", "each", "every"),
    *("worker", "pipeline", "microbatch", "gradient", "plan", "epoch", "stage", "failure", "node", "peer"),
    *("fails", "moves", "waits", "sends", "returns", "is", "has", "takes", "holds", "runs"),
    *("here", "there", "again", "over", "on", "beside", "before", "after"),
)


def write_text(seed: int, iteration: int, pipeline: int, microbatch: int, *, length: int) -> str:
    """Words of one sample.

    Examples
    --------
    >>> write_text(0, 3, 1, 2, length=12) == write_text(0, 3, 1, 2, length=12)
    True
    """
    draw = random.Random(f"{seed} {iteration} {pipeline} {microbatch}")
    words = [draw.choice(_WORDS)]
    while sum(map(len, words)) + len(words) <= length:
        words.append(draw.choice(_WORDS))
    return " ".join(words)[:length]


def encode(text: str) -> torch.Tensor:
    """Numbers of the letters, int64."""
    return torch.tensor([ALPHABET.index(letter) for letter in text])
