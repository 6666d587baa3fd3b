"""Seeds that say what is random in an operation, whoever runs it."""

from __future__ import annotations

import hashlib


def forward_seed(seed: int, iteration: int, stage: int, pipeline: int, microbatch: int) -> int:
    """Seed of the random numbers, dropout's for example, of one microbatch in one stage: 0 to 2^63 - 1.

    Parameters
    ----------
    seed
        Seed of the job.
    iteration, stage, pipeline, microbatch
        The F that is run, ``pipeline`` being the microbatch's home.
    """
    text = f"{seed} {iteration} {stage} {pipeline} {microbatch}"
    return int.from_bytes(hashlib.blake2b(text.encode("ascii"), digest_size=8).digest(), "little") >> 1
