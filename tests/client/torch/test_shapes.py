"""What stages take and give, worked out without computing and agreed on through the store."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import torch
import torch.distributed as dist
from replan_client.torch.errors import LinkBrokenError, StageShapeError
from replan_client.torch.shapes import StageSpec, agree_on_specs, output_spec
from replan_client.torch.spec import TensorSpec
from replan_client.torch.splitting import why_not_splittable
from torch import nn

from tests.client.torch.processes import Here, processes
from tests.client.torch.test_state import Calibrated

TOKENS = TensorSpec(shape=(2, 5), dtype=torch.int64)
FLOATS = TensorSpec(shape=(2, 5), dtype=torch.float32)


def _spec(*shape: int, dtype: torch.dtype = torch.float32) -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype)


class _Counts(nn.Module):
    """Counts its calls in a buffer and keeps an unregistered tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.plain = torch.ones(5)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return value * self.plain


class _GivesTwo(nn.Module):
    def forward(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return value, value


@pytest.mark.parametrize(
    ("module", "given", "expected"),
    [
        (nn.Embedding(9, 4), TOKENS, _spec(2, 5, 4)),
        (nn.Linear(5, 3), FLOATS, _spec(2, 3)),
        (nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (10, 1))), FLOATS, _spec(10, 1)),
        (nn.Linear(5, 3).double(), _spec(7, 5, dtype=torch.float64), _spec(7, 3, dtype=torch.float64)),
        (nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5)), FLOATS, FLOATS),
        (_Counts(), FLOATS, FLOATS),
    ],
    ids=["embedding", "linear", "views", "double", "random", "buffers"],
)
def test_output_is_worked_out_without_computing(module: nn.Module, given: TensorSpec, expected: TensorSpec) -> None:
    """Shape and type are right; buffers, gradients and the random state do not change."""
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.random.get_rng_state()
    assert output_spec(1, module, given) == expected
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    ("stage", "module", "message"),
    [
        (2, nn.Linear(6, 3), r"^stage 2 does not take what stage 1 gives, \[2, 5\] float32: RuntimeError: "),
        (0, nn.Linear(6, 3), r"^stage 0 does not take what the data gives, \[2, 5\] float32: "),
        (2, nn.Embedding(9, 4), r"^stage 2 does not take what stage 1 gives, \[2, 5\] float32: "),
        (3, _GivesTwo(), "^stage 3 gives a tuple; expected one tensor"),
    ],
)
def test_modules_that_do_not_fit_are_named(stage: int, module: nn.Module, message: str) -> None:
    """The error names both stages, what the one gives and why the other does not take it."""
    with pytest.raises(StageShapeError, match=message):
        output_spec(stage, module, FLOATS)


def _agree(here: Here, stages: tuple[int, ...], widths: tuple[int, ...]) -> Mapping[int, StageSpec] | str:
    """Agree as a worker that holds some stages: each takes the next width, from tokens on."""
    modules = {v: nn.Embedding(9, widths[1]) if v == 0 else nn.Linear(*widths[2 * v : 2 * v + 2]) for v in stages}
    try:
        return agree_on_specs(here.store(), modules, TOKENS, num_stages=len(widths) // 2, timeout_s=here.limit_s)
    except StageShapeError as error:
        return str(error)


def test_trials_leave_extra_states_as_they_are() -> None:
    """Layers that watch what passes them see neither the tensors without content nor the random numbers of trials."""
    module = Calibrated()
    module(torch.ones(2, 3))
    spec = TensorSpec(shape=(2, 3), dtype=torch.float32)
    assert output_spec(0, module, spec) == spec
    # Were it not for the same state before both, the whole and the halved backward would differ.
    assert why_not_splittable(nn.Sequential(module, nn.Linear(3, 3)), spec) is None
    assert (module.num_calls, [float(value) for value in module.seen]) == (1, [1.0])


def test_stages_of_other_workers_are_learnt_of() -> None:
    """Two workers, V placement: each waits for what the other's stages give, and the peers say the same."""
    widths = (0, 4, 4, 6, 6, 3, 3, 7)
    with processes() as group:
        children = [group.start(f"{k}/{s}", _agree, (s, 3 - s), widths) for k in range(2) for s in range(2)]
        found = [child.result() for child in children]
    ends = {
        0: StageSpec(input=TOKENS, output=_spec(2, 5, 4)),
        3: StageSpec(input=_spec(2, 5, 3), output=_spec(2, 5, 7)),
    }
    middle = {
        1: StageSpec(input=_spec(2, 5, 4), output=_spec(2, 5, 6)),
        2: StageSpec(input=_spec(2, 5, 6), output=_spec(2, 5, 3)),
    }
    assert found == [ends, middle, ends, middle]


def test_everybody_learns_of_a_stage_that_does_not_fit() -> None:
    """Workers before it, after it and of the same slot get the same error, not a time-out."""
    widths = (0, 4, 4, 6, 5, 3, 3, 7)
    with processes() as group:
        children = [group.start(f"{k}/{v}", _agree, (v,), widths) for k in range(2) for v in range(4)]
        found = {child.result().partition("[")[0] for child in children}
    assert found == {"stage 2 does not take what stage 1 gives, "}


def test_integers_have_no_gradient() -> None:
    """A stage before the last that gives integers is refused."""
    with pytest.raises(StageShapeError, match=r"stage 0 gives \[2, 5\] int64; only floating point numbers"):
        agree_on_specs(dist.HashStore(), {0: nn.Identity()}, TOKENS, num_stages=2)


def test_a_stage_before_that_says_nothing_ends_at_the_limit() -> None:
    """Whoever holds it may be dead."""
    with pytest.raises(LinkBrokenError, match=r"nobody said within 0\.1 s what stage 0 gives"):
        agree_on_specs(dist.HashStore(), {1: nn.Linear(5, 5)}, FLOATS, num_stages=2, timeout_s=0.1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[1]",
        json.dumps({"shape": [2]}),
        json.dumps({"shape": [2, -1], "dtype": "float32"}),
        json.dumps({"shape": [True], "dtype": "float32"}),
        json.dumps({"shape": "22", "dtype": "float32"}),
        json.dumps({"shape": [2], "dtype": "no_such_type"}),
        json.dumps({"shape": [2], "dtype": ["float32"]}),
        json.dumps({"shape": [2] * 10_000, "dtype": "float32"}),
    ],
)
def test_nonsense_in_the_store_is_refused(text: str) -> None:
    """What stands in the store is read strictly, and nothing of it is run."""
    store = dist.HashStore()
    store.set("takes/1", text)
    with pytest.raises(StageShapeError, match="stage 0 gives"):
        agree_on_specs(store, {1: nn.Linear(2, 2)}, FLOATS, num_stages=2, timeout_s=5)
