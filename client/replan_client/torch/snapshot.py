"""Everything of a worker's stages that training changes, as named tensors and numbers, with a layout that can be described.

Tensors are parameters, persistent buffers, what the optimizers keep of each parameter, and those in extra states of modules.
Numbers are what else optimizers keep, the options of their groups, so that a changed learning rate is copied too, and the forms
of extra states. Nothing is pickled: a layout is JSON, and the tensors' bytes follow in its order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from replan_client.torch.extra_state import Number, PackedState
from replan_client.torch.training_errors import StateFormatError
from replan_client.torch.volatile import Volatile

MAX_LAYOUT_BYTES = 64 * 1024 * 1024
"""Longest layout that is read."""
MAX_EXTRA_BYTES = 256 * 1024 * 1024
"""Most bytes of the tensors in extra states that are taken from a peer; unlike all others, they may have any shape."""
_MOST_DIMENSIONS = 8
_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """Named tensors and numbers of one version of a state.

    Parameters
    ----------
    tensors
        By name: ``<stage>.parameter.<name>``, ``<stage>.buffer.<name>``, ``<stage>.optimizer.<parameter>.<key>``,
        ``<stage>.group.<index>.<key>`` or ``<stage>.extra.<module>.<index>``.
    numbers
        By the same names, what is no tensor; by ``<stage>.extra.<module>`` the form of an extra state.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    numbers: dict[str, Number] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def layout(self) -> bytes:
        """Names, types and shapes of the tensors in order, and the numbers, as JSON."""
        tensors = [
            [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
            for name, tensor in self.tensors.items()
        ]
        return json.dumps({"tensors": tensors, "numbers": self.numbers}).encode()

    def extra(self, name: str) -> PackedState:
        """Extra state of a module, by ``<stage>.extra.<module>``; its tensors are this one's.

        Raises
        ------
        StateFormatError
            If there is none, or its tensors are not numbered from 0 on.
        """
        prefix = f"{name}."
        found = {key.removeprefix(prefix): value for key, value in self.tensors.items() if key.startswith(prefix)}
        # Modules within this one, whose names begin alike, have extra states of their own.
        found = {key: value for key, value in found.items() if key.isdigit()}
        numbered = {key: found[key] for key in map(str, range(len(found))) if key in found}
        if name not in self.numbers or len(numbered) != len(found):
            raise StateFormatError(f"a peer's state has no whole {name}; peers run the same modules")
        return PackedState(form=self.numbers[name], tensors=tuple(numbered.values()))

    def take(self, other: Snapshot) -> None:
        """Become a copy of another one; tensors that fit are written over instead of made anew."""
        self.tensors = {
            name: _written(self.tensors.get(name), tensor.detach()) for name, tensor in other.tensors.items()
        }
        self.numbers = dict(other.numbers)


def view_of(
    modules: Mapping[int, nn.Module],
    optimizers: Mapping[int, torch.optim.Optimizer],
    volatile: Volatile | None = None,
) -> Snapshot:
    """The state of these stages, without copying it.

    Parameters
    ----------
    modules, optimizers
        By stage.
    volatile
        Buffers and extra states of these stages; ``None``: those that the modules hold now.

    Raises
    ------
    StateFormatError
        If an optimizer holds a parameter that its module has not, or keeps what is neither tensor nor number, or an extra state
        cannot be copied.
    """
    view = Snapshot()
    for stage, module in modules.items():
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        for name, parameter in module.named_parameters():
            view.tensors[f"{stage}.parameter.{name}"] = parameter.detach()
        optimizer = optimizers[stage]
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key != "params":
                    _put(view, f"{stage}.group.{index}", key, value)
            for parameter in group["params"]:
                if id(parameter) not in names:
                    raise StateFormatError(
                        f"the optimizer of stage {stage} has a parameter of shape {tuple(parameter.shape)} that the "
                        "stage's module has not",
                        hint="make each stage's optimizer from the parameters of the module that it is given",
                    )
                for key, value in optimizer.state.get(parameter, {}).items():
                    _put(view, f"{stage}.optimizer.{names[id(parameter)]}", key, value)
    volatile = Volatile.of(modules) if volatile is None else volatile
    view.tensors |= volatile.buffers
    for owner, packed in volatile.extras.items():
        view.numbers[owner] = packed.form
        view.tensors |= {f"{owner}.{index}": tensor for index, tensor in enumerate(packed.tensors)}
    return view


def restore(
    snapshot: Snapshot, modules: Mapping[int, nn.Module], optimizers: Mapping[int, torch.optim.Optimizer]
) -> None:
    """Write a snapshot into modules and optimizers, in place; what the optimizers hold beyond it is dropped."""
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            _overwrite(parameter.detach(), snapshot.tensors[f"{stage}.parameter.{name}"])
        _restore_optimizer(snapshot, stage, module, optimizers[stage])
    buffers = {name: tensor for name, tensor in snapshot.tensors.items() if _kind_of(name) == "buffer"}
    extras = {name: snapshot.extra(name) for name in snapshot.numbers if _kind_of(name) == "extra"}
    Volatile(buffers=buffers, extras=extras).restore(modules)


def empty_like_layout(content: bytes, own: Snapshot) -> Snapshot:
    """A snapshot of the layout that a peer described, with tensors still to be filled.

    Parameters
    ----------
    content
        The layout.
    own
        The state of the same stages here: parameters and buffers must be those, and what the peer's optimizer keeps of a
        parameter may not be larger than the parameter.

    Raises
    ------
    StateFormatError
        If it cannot be read, or describes the state of other modules.
    """
    document = _parse_layout(content)
    snapshot = Snapshot(numbers=document["numbers"])
    for name in snapshot.numbers:
        stage, kind, rest = name.split(".", 2) if name.count(".") >= 2 else ("", "", "")
        is_own = name in own.numbers if kind == "extra" else kind == "group" and name in own.tensors | own.numbers
        if not is_own and f"{stage}.parameter.{rest.rpartition('.')[0]}" not in own.tensors:
            raise StateFormatError(
                f"a peer's state has {name[:100]}, which nothing here has; peers run the same modules"
            )
    extra_bytes = 0
    for entry in document["tensors"]:
        name, dtype, shape = _parse_entry(entry)
        if name in snapshot.tensors:
            raise StateFormatError(f"a peer's state has {name} twice")
        device = _device_for(name, dtype, shape, own)
        extra_bytes += _extra_bytes(name, dtype, shape)
        if extra_bytes > MAX_EXTRA_BYTES:
            raise StateFormatError(f"a peer's extra states have more than {MAX_EXTRA_BYTES} bytes of tensors")
        snapshot.tensors[name] = torch.empty(shape, dtype=dtype, device=device)
    expected = {name for name in own.tensors if _kind_of(name) in ("parameter", "buffer")}
    if missing := sorted(expected - snapshot.tensors.keys()):
        raise StateFormatError(
            f"a peer's state has no {missing[0]}, as {len(missing)} in all; peers run the same modules"
        )
    for name in own.numbers:
        if _kind_of(name) == "extra":
            snapshot.extra(name).value()
    return snapshot


def _kind_of(name: str) -> str:
    return name.split(".", 2)[1]


def _put(view: Snapshot, owner: str, key: object, value: Any) -> None:
    if not isinstance(key, str) or "." in key:
        raise StateFormatError(f"{owner} has the key {key!r}; expected a name without a dot")
    name = f"{owner}.{key}"
    if isinstance(value, Tensor):
        view.tensors[name] = value.detach()
    elif _is_number(value):
        view.numbers[name] = _listed(value)
    else:
        raise StateFormatError(
            f"{name} is a {type(value).__name__}; expected tensors, numbers, or lists of numbers",
            hint="train with an optimizer whose state is made of those, as torch.optim's are",
        )


def _listed(value: Any) -> Number:
    return [_listed(part) for part in value] if isinstance(value, (list, tuple)) else value


def _is_number(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_number, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _restore_optimizer(snapshot: Snapshot, stage: int, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for index, group in enumerate(optimizer.param_groups):
        for key in [key for key in group if key != "params"]:
            name = f"{stage}.group.{index}.{key}"
            if name in snapshot.tensors:
                group[key] = _written(group[key], snapshot.tensors[name])
            elif name in snapshot.numbers:
                value = snapshot.numbers[name]
                group[key] = tuple(value) if isinstance(value, list) and isinstance(group[key], tuple) else value
    # Names of parameters have dots, keys have none.
    kept: dict[str, dict[str, Any]] = {name: {} for name, _ in module.named_parameters()}
    prefix = f"{stage}.optimizer."
    for name, value in [*snapshot.tensors.items(), *snapshot.numbers.items()]:
        if name.startswith(prefix):
            parameter_name, _, key = name.removeprefix(prefix).rpartition(".")
            kept[parameter_name][key] = value
    for name, parameter in module.named_parameters():
        if not kept[name]:
            optimizer.state.pop(parameter, None)
            continue
        before = optimizer.state.get(parameter, {})
        optimizer.state[parameter] = {
            key: _written(before.get(key), value) if isinstance(value, Tensor) else value
            for key, value in kept[name].items()
        }


def _written(into: Tensor | None, value: Tensor) -> Tensor:
    """``value``'s content in ``into`` where that fits, else in a new tensor of its own."""
    fits = isinstance(into, Tensor) and (into.shape, into.dtype, into.device) == (
        value.shape,
        value.dtype,
        value.device,
    )
    if not fits or into is None:
        return value.detach().clone(memory_format=torch.contiguous_format)
    _overwrite(into, value)
    return into


def _overwrite(into: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        into.copy_(value)


def _parse_layout(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
        is_sound = (
            isinstance(document, dict)
            and set(document) == {"tensors", "numbers"}
            and isinstance(document["tensors"], list)
            and isinstance(document["numbers"], dict)
            and all(map(_is_number, document["numbers"].values()))
        )
    except (ValueError, RecursionError) as error:
        raise StateFormatError(f"a peer's layout cannot be read: {content[:100]!r}") from error
    if not is_sound:
        raise StateFormatError(f"a peer's layout has another form: {content[:100]!r}")
    return dict(document)


def _parse_entry(entry: Any) -> tuple[str, torch.dtype, tuple[int, ...]]:
    if isinstance(entry, list) and len(entry) == 3:
        name, dtype, shape = entry
        is_shape = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
        is_named = isinstance(name, str) and name.count(".") >= 2 and isinstance(dtype, str) and dtype in _DTYPES
        if is_shape and is_named and len(shape) <= _MOST_DIMENSIONS:
            return name, _DTYPES[dtype], tuple(shape)
    raise StateFormatError(f"a peer's layout has the entry {str(entry)[:100]}; expected a name, a type and a shape")


def _device_for(name: str, dtype: torch.dtype, shape: tuple[int, ...], own: Snapshot) -> torch.device:
    """Where a described tensor belongs; raises where no such tensor can be here."""
    mine = own.tensors.get(name)
    stage, kind, rest = name.split(".", 2)
    if kind == "optimizer":
        parameter = own.tensors.get(f"{stage}.parameter.{rest.rpartition('.')[0]}")
        if parameter is not None and torch.Size(shape).numel() <= max(parameter.numel(), 1):
            # Counters of steps stay with the CPU, as torch.optim keeps them where it does not capture graphs.
            return parameter.device if len(shape) or mine is None else mine.device
    elif kind == "extra" and f"{stage}.extra.{rest.rpartition('.')[0]}" in own.numbers:
        return torch.device("cpu") if mine is None else mine.device
    elif mine is not None and (mine.dtype, tuple(mine.shape)) == (dtype, shape):
        return mine.device
    found = "nothing" if mine is None else f"{mine.dtype} of shape {tuple(mine.shape)}"
    raise StateFormatError(
        f"a peer's state has {name}, {dtype} of shape {shape}; here it is {found}", hint="peers run the same modules"
    )


def _extra_bytes(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel() * dtype.itemsize if _kind_of(name) == "extra" else 0
