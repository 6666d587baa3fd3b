"""Copies of a state from worker to worker: its layout, then its tensors one after the other."""

from __future__ import annotations

import torch

from replan_client.operation import Worker
from replan_client.torch.links import Links
from replan_client.torch.snapshot import MAX_LAYOUT_BYTES
from replan_client.torch.spec import TensorSpec, spec_of
from replan_client.torch.state import TrainingState
from replan_client.torch.training_errors import StateFormatError


def give_state(links: Links, receiver: Worker, state: TrainingState, version: int) -> int:
    """Send a version of a state to a peer that takes it; returns its bytes.

    Raises
    ------
    LinkBrokenError
        If the peer left.
    """
    snapshot = state.snapshot(version)
    layout = torch.frombuffer(bytearray(snapshot.layout()), dtype=torch.uint8)
    head = torch.tensor([layout.numel()], dtype=torch.int64)
    tensors = [tensor.to(links.device) for tensor in (head, layout, *snapshot.tensors.values())]
    links.give(receiver, tensors)
    return snapshot.num_bytes


def take_state(links: Links, donor: Worker, state: TrainingState, version: int) -> int:
    """Receive a version of a state from a peer that gives it; returns its bytes. It is held from then on, beside the live one.

    Raises
    ------
    LinkBrokenError
        If the peer left; the version is not held then.
    StateFormatError
        If it gives the state of other modules.
    """
    (head,) = links.take(donor, [TensorSpec(shape=(1,), dtype=torch.int64)])
    num_bytes = int(head.item())
    if not 0 < num_bytes <= MAX_LAYOUT_BYTES:
        raise StateFormatError(f"{donor} announces a layout of {num_bytes} bytes; expected 1 to {MAX_LAYOUT_BYTES}")
    (layout,) = links.take(donor, [TensorSpec(shape=(num_bytes,), dtype=torch.uint8)])
    room = state.begin_receiving(bytes(layout.cpu().tolist()))
    for tensor in room.tensors.values():
        (taken,) = links.take(donor, [spec_of(tensor)])
        tensor.copy_(taken)
    state.received(version)
    return room.num_bytes
