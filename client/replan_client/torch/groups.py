"""Process groups that may be left and formed again: raw ones, without torch's global registry.

What was tried, and why they are made like this, stands in ``docs/decisions/process-groups.md``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist


def make_group(store: dist.Store, rank: int, size: int, *, backend: str, timeout_s: float) -> Any:
    """Form a group with all its other ranks.

    Parameters
    ----------
    store
        A store that all ranks share; none of the keys of a former group may be in it.
    rank, size
        This process's place in the group, and how many there are.
    backend
        ``gloo`` or ``nccl``.
    timeout_s
        Seconds that the others may take to come, and later any operation.

    Raises
    ------
    RuntimeError
        If the others do not come in time.
    ValueError
        If the backend is another one.
    """
    if backend == "gloo":
        return _gloo(store, rank, size, timedelta(seconds=timeout_s))
    if backend == "nccl":
        return _nccl(store, rank, size, timedelta(seconds=timeout_s))
    raise ValueError(f"backend {backend!r} is not known; expected 'gloo' or 'nccl'")


def _gloo(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timeout
    # The threads run collectives only, and a worker never has two of a group at once.
    options._threads = 1
    # Connected at once: with lazy connections two first messages that cross sometimes hang for ever.
    options._devices = [dist.ProcessGroupGloo.create_default_device(lazy_init=False)]
    return dist.ProcessGroupGloo(store, rank, size, options)


def _nccl(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)
