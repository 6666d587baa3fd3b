"""What modules keep beside parameters and buffers (``get_extra_state``), as tensors and a form in JSON: nothing is pickled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from replan_client.torch.training_errors import StateFormatError

Number: TypeAlias = int | float | bool | str | list["Number"] | None
MAX_DEPTH = 32
"""How deep lists and dictionaries may stand within each other."""
_HINT = "let get_extra_state return tensors, numbers and texts, and lists, tuples and dictionaries of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedState:
    """An extra state.

    Parameters
    ----------
    form
        Its structure. Numbers and texts stand for themselves; a list is a kind and what it holds: ``["list", ...]``,
        ``["tuple", ...]``, ``["dict", [key, value], ...]``, ``["tensor"]``.
    tensors
        Its tensors, in the order in which they stand in the form.
    """

    form: Number
    tensors: tuple[Tensor, ...]

    def copied(self) -> PackedState:
        """The same with tensors of its own."""
        return PackedState(form=self.form, tensors=tuple(tensor.detach().clone() for tensor in self.tensors))

    def value(self) -> Any:
        """What the module returned; its tensors are this one's.

        Raises
        ------
        StateFormatError
            If the form is none, or has another number of tensors.
        """
        tensors = iter(self.tensors)
        value = _built(self.form, tensors, 0)
        if next(tensors, None) is not None:
            raise StateFormatError(f"an extra state has {len(self.tensors)} tensors; its form has less")
        return value


def extra_owners(modules: Mapping[int, nn.Module]) -> dict[str, nn.Module]:
    """Modules of stages that keep an extra state, by ``<stage>.extra.<module>``.

    Raises
    ------
    StateFormatError
        If one returns such a state and takes none.
    """
    found = {}
    for stage, module in modules.items():
        for path, part in module.named_modules():
            if type(part).get_extra_state is nn.Module.get_extra_state:
                continue
            if type(part).set_extra_state is nn.Module.set_extra_state:
                raise StateFormatError(
                    f"module {path!r} of stage {stage}, a {type(part).__name__}, has get_extra_state and no set_extra_state",
                    hint="define both, or none",
                )
            found[f"{stage}.extra.{path}"] = part
    return found


def pack(name: str, value: Any) -> PackedState:
    """An extra state, without copying its tensors.

    Parameters
    ----------
    name
        Whose it is, for errors.
    value
        What ``get_extra_state`` returned.

    Raises
    ------
    StateFormatError
        If it holds anything else than tensors, numbers, texts, lists, tuples, and dictionaries whose keys are texts.
    """
    tensors: list[Tensor] = []
    form = _form_of(name, value, tensors, 0)
    return PackedState(form=form, tensors=tuple(tensors))


def _form_of(name: str, value: Any, tensors: list[Tensor], depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise StateFormatError(f"{name} is more than {MAX_DEPTH} deep", hint=_HINT)
    if isinstance(value, Tensor):
        tensors.append(value.detach())
        return ["tensor"]
    if value is None or type(value) in (bool, int, float, str):
        scalar: Number = value
        return scalar
    if type(value) in (list, tuple):
        return [type(value).__name__, *(_form_of(name, part, tensors, depth + 1) for part in value)]
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return ["dict", *([key, _form_of(name, part, tensors, depth + 1)] for key, part in value.items())]
    raise StateFormatError(f"{name} holds a {type(value).__name__}", hint=_HINT)


def _built(form: Number, tensors: Iterator[Tensor], depth: int) -> Any:
    if not isinstance(form, list):
        return form
    kind, *parts = form or [None]
    if depth <= MAX_DEPTH:
        if kind == "tensor" and not parts:
            tensor = next(tensors, None)
            if tensor is not None:
                return tensor
        elif kind in ("list", "tuple"):
            built = [_built(part, tensors, depth + 1) for part in parts]
            return built if kind == "list" else tuple(built)
        elif kind == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in parts):
            pairs = [pair for pair in parts if isinstance(pair, list) and isinstance(pair[0], str)]
            if len(pairs) == len(parts):
                return {pair[0]: _built(pair[1], tensors, depth + 1) for pair in pairs}
    raise StateFormatError(
        f"an extra state has the form {str(form)[:100]}, which is none, or has tensors that are not there"
    )


def set_extra(module: nn.Module, packed: PackedState) -> None:
    """Give a module a copy of an extra state."""
    with torch.no_grad():
        module.set_extra_state(packed.copied().value())
