"""The state that a worker trains, in two versions: the newest, and the one before its last optimizer step.

The second one costs as much memory again as the stage's parameters and optimizer state. It is what lets workers go back by one
iteration when others had not come as far, and where a state that a peer sends is put until all have theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from replan_client.torch.agreement import Held
from replan_client.torch.snapshot import Snapshot, empty_like_layout, restore, view_of
from replan_client.torch.volatile import Volatile


class TrainingState:
    """Modules and optimizers of one worker's stages.

    A version counts the iterations completed. ``live`` is the one that the modules hold; parameters change only between
    :meth:`keep` and :meth:`complete`, so it stays whole however far into the next iteration its worker came. Persistent buffers
    and extra states of modules do change on the way: those of the iteration's start are kept apart and belong to the version.

    Parameters
    ----------
    modules, optimizers
        By stage; each optimizer has parameters of its stage's module alone.
    version
        Version that they are in; ``None``: none, the state has to come from a peer.
    is_initial
        Whether it was made here, and not by training.

    Raises
    ------
    StateFormatError
        If a module's or an optimizer's state cannot be copied.
    """

    def __init__(
        self,
        modules: Mapping[int, nn.Module],
        optimizers: Mapping[int, torch.optim.Optimizer],
        *,
        version: int | None,
        is_initial: bool,
    ) -> None:
        self.modules = dict(sorted(modules.items()))
        self.optimizers = dict(sorted(optimizers.items()))
        self.is_initial = is_initial and version is not None
        self._live = version
        self._kept: int | None = None
        self._snapshot = Snapshot()
        self._volatile = Volatile.of(self.modules).copied()
        self._view()

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages, ascending."""
        return tuple(self.modules)

    @property
    def live(self) -> int | None:
        """Version that the modules hold, so also the iteration that comes next; ``None``: no state yet."""
        return self._live

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions that can be gone on from, ascending."""
        return tuple(sorted({version for version in (self._live, self._kept) if version is not None}))

    @property
    def held(self) -> Held:
        """What the others are told of it."""
        return Held(stages=self.stages, versions=self.versions, is_initial=self.is_initial)

    def keep(self) -> None:
        """Keep the live version, since the optimizers are about to step: to be called before the first of them."""
        assert self._live is not None, "whoever steps has agreed on a version"
        self._kept = None
        self._snapshot.take(self._view())
        self._kept = self._live

    def complete(self) -> None:
        """All optimizers have stepped: the modules hold the next version."""
        assert self._live is not None and self._kept == self._live, "kept before the first step"
        self._live += 1
        self._volatile = Volatile.of(self.modules).copied()

    def adopt(self, version: int) -> None:
        """Go on from a version that is held, from the start of its next iteration; gradients of what was begun are dropped."""
        assert version in self.versions, "agreed versions are held"
        if version != self._live:
            restore(self._snapshot, self.modules, self.optimizers)
            self._live = version
            self._volatile = Volatile.of(self.modules).copied()
        else:
            self._volatile.restore(self.modules)
        self.is_initial = False
        for module in self.modules.values():
            module.zero_grad(set_to_none=True)

    def snapshot(self, version: int) -> Snapshot:
        """A version that is held, without copying it: valid until the next step."""
        assert version in self.versions, "donors hold what they give"
        return self._view() if version == self._live else self._snapshot

    def begin_receiving(self, layout: bytes) -> Snapshot:
        """Make room for a version that a peer described; the kept one is given up for it.

        Raises
        ------
        StateFormatError
            If it is not the state of these modules; the kept version stays then.
        """
        room = empty_like_layout(layout, self._view())
        self._kept = None
        self._snapshot = room
        return room

    def received(self, version: int) -> None:
        """What was made room for is there, whole."""
        self._kept = version

    def _view(self) -> Snapshot:
        return view_of(self.modules, self.optimizers, self._volatile)
