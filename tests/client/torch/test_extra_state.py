"""Extra states of modules as forms and tensors."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.torch.extra_state import MAX_DEPTH, PackedState, extra_owners, pack, set_extra  # noqa: E402
from replan_client.torch.training_errors import StateFormatError  # noqa: E402
from torch import nn  # noqa: E402

TENSORS = (torch.arange(3), torch.zeros(()), torch.ones(0, 2))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        2.5,
        "text",
        [],
        (),
        {},
        TENSORS[0],
        [1, ("a", [None])],
        {"scale": TENSORS[0], "more": [TENSORS[1], (TENSORS[2], 7)], "": {"tensor": ["list"]}},
    ],
)
def test_a_state_comes_back_as_it_was(value: Any) -> None:
    """Through JSON, with tuples as tuples, and texts that look like kinds as texts."""
    packed = pack("0.extra.a", value)
    read = PackedState(form=json.loads(json.dumps(packed.form)), tensors=packed.tensors)
    assert repr(read.value()) == repr(value)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b"bytes", "bytes"),
        (io.BytesIO(), "BytesIO"),
        ({1: 2}, "dict"),
        ([{3}], "set"),
        ({"a": object()}, "object"),
    ],
)
def test_what_would_have_to_be_pickled_is_refused(value: Any, what: str) -> None:
    """The error says whose it is and what may be there instead."""
    with pytest.raises(StateFormatError, match=rf"0.extra.a holds a {what} .*get_extra_state return tensors"):
        pack("0.extra.a", value)


def test_states_without_an_end_are_refused() -> None:
    """A list that holds itself is not followed for ever."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(StateFormatError, match=f"more than {MAX_DEPTH} deep"):
        pack("0.extra.a", endless)


class Half(nn.Module):
    """Gives a state and takes none."""

    def get_extra_state(self) -> int:
        """Some state."""
        return 1


class Whole(Half):
    """Keeps the very object that it is given."""

    def set_extra_state(self, state: Any) -> None:
        """Keep it."""
        self.state = state


def test_who_gives_a_state_has_to_take_one() -> None:
    """Otherwise it could not be copied or gone back to."""
    with pytest.raises(StateFormatError, match=r"module 'part' of stage 3, a Half, has get_extra_state and no set"):
        extra_owners({3: nn.ModuleDict({"part": Half()})})


def test_owners_are_found_at_any_depth() -> None:
    """The stage's module itself too; modules without such a state are left out."""
    inner = Whole()
    outer = Whole()
    outer.add_module("layers", nn.Sequential(nn.Linear(1, 1), inner))
    assert extra_owners({7: outer}) == {"7.extra.": outer, "7.extra.layers.1": inner}


def test_a_module_gets_tensors_of_its_own() -> None:
    """It may write into what it was given."""
    packed, module = pack("0.extra.a", [torch.zeros(2)]), Whole()
    set_extra(module, packed)
    module.state[0] += 1
    assert packed.value()[0].tolist() == [0, 0]
