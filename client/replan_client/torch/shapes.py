"""What each stage takes and gives: worked out stage by stage, without computing anything, and passed on through the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from replan_client.torch.errors import LinkBrokenError, StageShapeError
from replan_client.torch.spec import TensorSpec, spec_of
from replan_client.torch.volatile import undisturbed

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.complex128),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
_MOST_DIMENSIONS = 64
_MOST_BYTES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """What one stage takes and gives for one microbatch.

    Parameters
    ----------
    input
        What its module takes.
    output
        What its module gives; of the last stage, before the loss.
    """

    input: TensorSpec
    output: TensorSpec


def output_spec(stage: int, module: nn.Module, given: TensorSpec, *, device: torch.device | str = "cpu") -> TensorSpec:
    """What a module gives for an input of a kind; nothing is computed, and nothing of the module changes.

    Parameters
    ----------
    stage
        Its stage, for errors.
    module
        The module.
    given
        What the stage before gives, or what the data gives to stage 0.
    device
        Where the module is.

    Raises
    ------
    StageShapeError
        If the module does not take that, or gives something other than one tensor.
    """
    before = "the data gives" if stage == 0 else f"stage {stage - 1} gives"
    # Extra states are no tensors of the module, so no fake ones stand in for them.
    with undisturbed({stage: module}), FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.no_grad():
        # A buffer that the module changes must be a fake one too.
        state = {name: fake.from_tensor(value) for name, value in (*module.named_parameters(), *module.named_buffers())}
        try:
            output = functional_call(module, state, (given.empty(device),))
        # A module may raise anything where shapes do not fit.
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:300]
            raise StageShapeError(
                f"stage {stage} does not take what {before}, {given}: {type(error).__name__}: {reason}",
                hint="change one of the two modules, or the example input",
            ) from error
    if not isinstance(output, torch.Tensor):
        raise StageShapeError(f"stage {stage} gives a {type(output).__name__}; expected one tensor")
    return spec_of(output)


def agree_on_specs(
    store: dist.Store,
    modules: Mapping[int, nn.Module],
    example: TensorSpec,
    *,
    num_stages: int,
    device: torch.device | str = "cpu",
    timeout_s: float = 60.0,
) -> dict[int, StageSpec]:
    """What each stage held here takes and gives.

    All workers call this with a prefix of their store that nothing else uses, and the same ``example``. Each waits for what
    the stage before one of its own gives, and writes what its own gives, the same as its peers do.

    Parameters
    ----------
    store
        Shared by all workers.
    modules
        Module of each stage held here.
    example
        What stage 0 takes for one microbatch.
    num_stages
        Stages of the whole model.
    device
        Where the modules are.
    timeout_s
        Seconds that the stages before may take.

    Raises
    ------
    StageShapeError
        On every worker, if some stage does not take what the one before gives, or gives what has no gradient.
    LinkBrokenError
        If nobody says in time what a stage before gives.
    """
    specs: dict[int, StageSpec] = {}
    for stage in sorted(modules):
        given = example if stage == 0 else _read(store, stage, timeout_s)
        try:
            output = output_spec(stage, modules[stage], given, device=device)
            if stage < num_stages - 1 and not (output.dtype.is_floating_point or output.dtype.is_complex):
                raise StageShapeError(f"stage {stage} gives {output}; only floating point numbers have gradients")
        except StageShapeError as error:
            for later in range(stage + 1, num_stages + 1):
                store.set(_key(later), json.dumps({"error": str(error)}))
            raise
        specs[stage] = StageSpec(input=given, output=output)
        store.set(
            _key(stage + 1), json.dumps({"shape": output.shape, "dtype": str(output.dtype).removeprefix("torch.")})
        )
    # The end of the line speaks for all: whoever is before a stage that fails learns of it too.
    _read(store, num_stages, timeout_s)
    return specs


def _key(stage: int) -> str:
    return f"takes/{stage}"


def _read(store: dist.Store, stage: int, timeout_s: float) -> TensorSpec:
    """What the stage before ``stage`` said that it gives."""
    key = _key(stage)
    try:
        store.wait([key], timedelta(seconds=timeout_s))
        text = store.get(key)
    except RuntimeError as error:
        raise LinkBrokenError(
            f"nobody said within {timeout_s:g} s what stage {stage - 1} gives",
            hint="see why the workers that hold it did not start",
        ) from error
    try:
        document = json.loads(text) if len(text) <= _MOST_BYTES else None
    except ValueError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("error"), str):
        raise StageShapeError(document["error"])
    if not isinstance(document, dict) or set(document) != {"shape", "dtype"} or not _is_shape(document["shape"]):
        raise StageShapeError(f"the store says {text[:80]!r} of what stage {stage - 1} gives; expected shape and dtype")
    dtype = _DTYPES.get(str(document["dtype"]))
    if dtype is None:
        raise StageShapeError(
            f"stage {stage - 1} gives elements of type {document['dtype']!r}; expected one of {sorted(_DTYPES)}"
        )
    return TensorSpec(shape=tuple(document["shape"]), dtype=dtype)


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MOST_DIMENSIONS
        and all(type(size) is int and 0 <= size < 2**40 for size in value)
    )
