"""How many bytes a stretch of PyTorch code holds: what a microbatch costs in memory between its operations.

On a GPU the caching allocator counts. On the CPU nothing does, so :class:`CpuMeter` looks at every operator that runs,
backward ones too, and keeps a weak reference to each new storage: what is alive is counted, once however many
views it has, until its last owner lets it go. What existed before (parameters, gradients, optimizer state) is not counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Meter(Protocol):
    """Bytes of new tensors, counted while the context lasts."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def held(self) -> int:
        """Bytes alive now that were not when counting began."""
        ...

    def peak(self) -> int:
        """Most bytes alive at once since counting began or ``reset_peak`` was called."""
        ...

    def reset_peak(self) -> None:
        """Begin a new peak at what is alive now."""
        ...


def meter(device: torch.device) -> Meter:
    """Return the way to count on a device.

    Examples
    --------
    >>> with meter(torch.device("cpu")) as bytes_of:
    ...     a = torch.ones(10)
    ...     b = a.view(2, 5)
    ...     both = bytes_of.held()
    ...     del a, b
    ...     (both, bytes_of.held(), bytes_of.peak())
    (40, 0, 40)
    """
    return CudaMeter(device) if device.type == "cuda" else CpuMeter()


class CpuMeter:
    """Weak references to every storage that an operator made.

    A tensor that comes into view as an argument and was made by no operator seen is older than the context, and never
    counted. Memory that an operator takes and gives back before it returns is not seen: the peak is that of tensors.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._older: dict[int, weakref.ref[Any]] = {}
        self._bytes = 0
        self._peak = 0
        self._mode = _Watch(self)

    def __enter__(self) -> Self:
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mode.__exit__(kind, error, trace)

    def held(self) -> int:
        """Bytes alive now that were not when counting began."""
        return self._bytes

    def peak(self) -> int:
        """Most bytes alive at once since counting began or ``reset_peak`` was called."""
        return self._peak

    def reset_peak(self) -> None:
        """Begin a new peak at what is alive now."""
        self._peak = self._bytes

    def note_argument(self, tensor: torch.Tensor) -> None:
        """See a tensor that an operator is about to read."""
        storage = tensor.untyped_storage()
        key = id(storage)
        if key not in self._held and key not in self._older:
            older = self._older
            older[key] = weakref.ref(storage, lambda _: older.pop(key, None))

    def note_result(self, tensor: torch.Tensor) -> None:
        """See a tensor that an operator returned."""
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._held or key in self._older:
            return
        size = storage.nbytes()
        self._held[key] = (weakref.ref(storage, lambda _: self._forget(key)), size)
        self._bytes += size
        self._peak = max(self._peak, self._bytes)

    def _forget(self, key: int) -> None:
        self._bytes -= self._held.pop(key)[1]


class _Watch(TorchDispatchMode):
    """Shows a :class:`CpuMeter` the arguments and results of every operator."""

    def __init__(self, owner: CpuMeter) -> None:
        super().__init__()
        self._owner = owner

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for value in tree_iter((args, kwargs)):
            if isinstance(value, torch.Tensor):
                self._owner.note_argument(value)
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                self._owner.note_result(value)
        return result


class CudaMeter:
    """The caching allocator's own figures; sizes come in its blocks of 512 bytes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0

    def __enter__(self) -> Self:
        torch.cuda.synchronize(self._device)
        self._before = torch.cuda.memory_allocated(self._device)
        self.reset_peak()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.cuda.synchronize(self._device)

    def held(self) -> int:
        """Bytes allocated now above those when counting began."""
        return int(torch.cuda.memory_allocated(self._device)) - self._before

    def peak(self) -> int:
        """Most bytes allocated at once since counting began or ``reset_peak`` was called, above those at its beginning."""
        return int(torch.cuda.max_memory_allocated(self._device)) - self._before

    def reset_peak(self) -> None:
        """Begin a new peak at what is allocated now."""
        torch.cuda.reset_peak_memory_stats(self._device)
