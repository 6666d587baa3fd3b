"""Death at a chosen point of the protocol, in the process that calls :func:`die_when`.

========== ==========================================================
point      when
========== ==========================================================
member     its record is published
ready      it has said that it is ready, and connects next
give       it has sent the first half of a state
take       it has received the first half of a state
copied     it has copied all it had to, and is to say so
begin      it has seen that all have
end        it has completed the last iteration, and is to say so
========== ==========================================================
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from replan_client.torch import formation, training_loop
from replan_client.torch.links import Links
from replan_client.torch.rendezvous import Rendezvous


def die_when(point: str, count: int) -> None:
    """Kill this process (SIGKILL) when it comes to a point for the ``count``-th time."""
    left = count

    def come() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(owner: Any, name: str) -> None:
        original = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: (come(), original(*args, **kwargs))[1])

    def in_half(name: str) -> None:
        """Die at the second transfer of tensors within a copy."""
        copy, transfer = getattr(formation, f"{name}_state"), getattr(Links, name)

        def halved(links: Links, *args: Any) -> Any:
            calls = 0

            def one(*transferred: Any) -> Any:
                nonlocal calls
                calls += 1
                if name == "give":
                    target, tensors = transferred
                    transfer(links, target, tensors[: len(tensors) // 2])
                    come()
                    return transfer(links, target, tensors[len(tensors) // 2 :])
                if calls == 4:
                    come()
                return transfer(links, *transferred)

            links.__dict__[name] = one
            return copy(links, *args)

        setattr(formation, f"{name}_state", halved)

    def publish(phase: str, *, is_before: bool = False) -> None:
        original: Callable[..., bytes] = Rendezvous.publish

        def patched(self: Rendezvous, generation: Any, published: str, *args: Any) -> bytes:
            if is_before and published == phase:
                come()
            standing = original(self, generation, published, *args)
            if not is_before and published == phase:
                come()
            return standing

        Rendezvous.publish = patched  # type: ignore[method-assign]

    points: dict[str, Callable[[], None]] = {
        "member": lambda: publish("member"),
        "ready": lambda: publish("ready"),
        "give": lambda: in_half("give"),
        "take": lambda: in_half("take"),
        "copied": lambda: publish("copied", is_before=True),
        "begin": lambda: before(training_loop.TrainingLoop, "_begin"),
        "end": lambda: publish("end", is_before=True),
    }
    points[point]()
