"""What an iteration changes on its way, before any optimizer steps: persistent buffers, and extra states of modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from replan_client.torch.extra_state import PackedState, extra_owners, pack, set_extra


@dataclass(frozen=True, slots=True, kw_only=True)
class Volatile:
    """Buffers and extra states of some stages.

    Parameters
    ----------
    buffers
        Persistent buffers by ``<stage>.buffer.<name>``.
    extras
        Extra states by ``<stage>.extra.<module>``.
    """

    buffers: dict[str, Tensor]
    extras: dict[str, PackedState]

    @classmethod
    def of(cls, modules: Mapping[int, nn.Module]) -> Volatile:
        """Those of modules, without copying them.

        Raises
        ------
        StateFormatError
            If an extra state cannot be copied.
        """
        owners = extra_owners(modules)
        return cls(
            buffers=persistent_buffers(modules),
            extras={name: pack(name, module.get_extra_state()) for name, module in owners.items()},
        )

    def copied(self) -> Volatile:
        """The same with tensors of its own."""
        return Volatile(
            buffers={name: buffer.detach().clone() for name, buffer in self.buffers.items()},
            extras={name: packed.copied() for name, packed in self.extras.items()},
        )

    def restore(self, modules: Mapping[int, nn.Module]) -> None:
        """Write them into modules: buffers in place, extra states as copies that the modules may keep."""
        with torch.no_grad():
            for name, buffer in persistent_buffers(modules).items():
                buffer.copy_(self.buffers[name])
        for name, module in extra_owners(modules).items():
            set_extra(module, self.extras[name])


@contextmanager
def undisturbed(modules: Mapping[int, nn.Module]) -> Iterator[None]:
    """Put buffers and extra states back after this block, in which the modules are run for a trial."""
    kept = Volatile.of(modules).copied()
    try:
        yield
    finally:
        kept.restore(modules)


def persistent_buffers(modules: Mapping[int, nn.Module]) -> dict[str, Tensor]:
    """Buffers that belong to the modules' state, by full name; what is only derived from other things is left out."""
    found = {}
    for stage, module in modules.items():
        kept = module.state_dict(keep_vars=True).keys()
        for name, buffer in module.named_buffers():
            if name in kept:
                found[f"{stage}.buffer.{name}"] = buffer
    return found
