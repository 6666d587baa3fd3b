"""One stage: its backward in halves equals the whole one, whatever the module does with its gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from replan_client.torch.errors import StageShapeError
from replan_client.torch.spec import TensorSpec, spec_of
from replan_client.torch.splitting import why_not_splittable
from replan_client.torch.stage import Stage
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.client.torch.unsplittable import Once


class _AddsParameters(nn.Module):
    """Two parameters added to the input: the gradients of both, and of the input, are one and the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(3, 4))
        self.second = nn.Parameter(torch.ones(3, 4))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + self.first + self.second


class _Reuses(nn.Module):
    """One parameter used twice, one not at all, one that is not trained, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(requires_grad=False)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.scale * self.frozen(self.twice(torch.relu(self.twice(value))))


class _Residual(nn.Module):
    """Two ways around, and an output that is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        normal = self.norm(value)[None]
        return (value + self.attention(normal, normal, normal)[0][0]).transpose(0, 1)


class _IgnoresInput(nn.Module):
    """An output that does not depend on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.constant = nn.Parameter(torch.ones(4))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.constant).expand(len(value), -1)


class _Checkpointed(nn.Module):
    """Keeps its input only and runs forward again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 4))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = checkpoint(self.inner, value, use_reentrant=False)
        return found


MODULES: dict[str, Callable[[], nn.Module]] = {
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
    "checkpointed": _Checkpointed,
    "linear": lambda: nn.Linear(4, 6),
    "deep": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.5), nn.Linear(8, 2)),
    "adds-parameters": _AddsParameters,
    "reuses": _Reuses,
    "residual": _Residual,
    "batch-norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    "no-parameters": nn.Tanh,
    "identity": nn.Identity,
    "view": lambda: nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)), nn.Flatten()),
}
SPEC = TensorSpec(shape=(3, 4), dtype=torch.float64)


def _module(name: str) -> nn.Module:
    torch.manual_seed(5)
    return MODULES[name]().double()


def _expected(module: nn.Module, values: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Input gradients one by one and summed gradients of the parameters, by plain autograd."""
    inputs = []
    for number, value in enumerate(values):
        leaf = value.clone().requires_grad_()
        torch.manual_seed(number)
        output = module(leaf)
        output.backward(_gradient(output))
        inputs.append(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
    return inputs, [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def _gradient(output: torch.Tensor) -> torch.Tensor:
    return torch.arange(output.numel(), dtype=output.dtype).reshape(output.shape).cos()


def _same(found: torch.Tensor | None, expected: torch.Tensor | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return torch.allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("how", ["split", "late weights", "whole", "mixed"])
@pytest.mark.parametrize("name", MODULES)
def test_backward_equals_autograd(name: str, how: str) -> None:
    """Three microbatches under way at once: gradients add up to autograd's, in halves, whole, or some of each."""
    module = _module(name)
    values = [torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    inputs, sums = _expected(module, values)
    module.zero_grad()
    stage = Stage(1, 3, module)
    outputs = [stage.forward((0, n), value, seed=n) for n, value in enumerate(values)]
    assert stage.num_held == 3
    found, kept = [], []
    for n, output in enumerate(outputs):
        if how == "whole" or (how == "mixed" and n == 1):
            found.append(stage.backward((0, n), _gradient(output)))
            continue
        found.append(stage.input_grad((0, n), _gradient(output)))
        if how != "late weights":
            stage.weight_grad((0, n))
        else:
            kept.append(n)
    for n in kept:
        stage.weight_grad((0, n))
    assert stage.num_held == 0
    assert all(_same(a, b) for a, b in zip(found, inputs, strict=True))
    assert all(_same(parameter.grad, total) for parameter, total in zip(module.parameters(), sums, strict=True))


@pytest.mark.parametrize("name", MODULES)
def test_ordinary_modules_can_be_split(name: str) -> None:
    """The trial finds nothing wrong with them, and leaves the module, its gradients and the random state alone."""
    module = _module(name)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    state = torch.random.get_rng_state()
    assert why_not_splittable(module, SPEC) is None
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


class _Doubles(torch.autograd.Function):
    """A multiplication whose backward hands its weight's gradient out only when the input's is asked for too."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(value, weight)
        ctx.calls = 0
        return value * weight

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value, weight = ctx.saved_tensors
        ctx.calls += 1
        return gradient * weight, gradient * value / ctx.calls


class _CountsBackwards(nn.Module):
    """Runs its backward differently the second time, as some fused kernels do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 3.0))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return _Doubles.apply(value, self.weight)


class _RaisesTwice(nn.Module):
    """Frees what it saved in the first backward, so that a second one raises."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return Once.apply(value, self.inner.weight)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_CountsBackwards, "the gradient of parameter weight differs by"),
        (_RaisesTwice, "IndexError: pop from empty list"),
    ],
)
def test_modules_that_cannot_be_split_are_found(build: Callable[[], nn.Module], reason: str) -> None:
    """A backward that gives other numbers when run twice, cannot run twice, or goes around the input: told with the reason."""
    assert (why_not_splittable(build().double(), SPEC) or "").startswith(reason)


def test_an_input_that_is_not_used_gets_zeros() -> None:
    """The stage before waits for a gradient all the same."""
    stage = Stage(1, 3, _IgnoresInput())
    output = stage.forward((0, 0), torch.ones(3, 4), seed=0)
    gradient = stage.backward((0, 0), torch.ones_like(output))
    assert gradient is not None
    assert gradient.tolist() == torch.zeros(3, 4).tolist()


def test_the_first_stage_takes_tokens() -> None:
    """Inputs without gradients: I does nothing, W the whole backward; numbers that are no floating points are fine."""
    torch.manual_seed(5)
    module = nn.Embedding(10, 4)
    stage = Stage(0, 2, module)
    output = stage.forward((0, 0), torch.tensor([1, 3, 3]), seed=0)
    assert stage.input_grad((0, 0), torch.ones_like(output)) is None
    assert module.weight.grad is None
    assert stage.num_held == 1
    stage.weight_grad((0, 0))
    # Token 3 stands there twice.
    assert module.weight.grad is not None
    assert module.weight.grad.sum(1).tolist() == [0, 4, 0, 8, 0, 0, 0, 0, 0, 0]


def test_the_last_stage_starts_from_its_loss() -> None:
    """The gradient of the loss needs no message."""
    module = nn.Linear(2, 1, bias=False)
    stage = Stage(1, 2, module, loss_fn=lambda output, labels: ((output - labels) ** 2).mean())
    torch.nn.init.ones_(module.weight)
    loss = stage.forward((0, 0), torch.tensor([[1.0, 2.0]]), seed=0, labels=torch.tensor([[1.0]]))
    # (1 + 2 - 1)^2, then 2 * 2 times the weights, and times the inputs.
    assert loss.item() == 4
    gradient = stage.input_grad((0, 0), None)
    stage.weight_grad((0, 0))
    assert gradient is not None
    assert module.weight.grad is not None
    assert (gradient.tolist(), module.weight.grad.tolist()) == ([[4, 4]], [[4, 8]])


def test_what_is_sent_does_not_change_while_gradients_add_up() -> None:
    """The input's gradient may be the very tensor of a parameter's: adding to one must leave the other alone."""
    stage = Stage(1, 3, _AddsParameters())
    sent = []
    for n in range(3):
        stage.forward((0, n), torch.zeros(3, 4), seed=n)
        sent.append(stage.input_grad((0, n), torch.full((3, 4), float(n + 1))))
        stage.weight_grad((0, n))
    assert [tensor.unique().tolist() for tensor in sent if tensor is not None] == [[1], [2], [3]]
    assert [p.grad.unique().tolist() for p in stage.parameters if p.grad is not None] == [[6], [6]]


def test_dropout_depends_on_the_seed_alone() -> None:
    """The same seed drops the same, whatever ran before; the state of torch's own generator stays as it was."""
    stage = Stage(1, 3, nn.Dropout(0.5))
    value = torch.ones(50)
    first = stage.forward((0, 0), value, seed=7)
    torch.rand(3)
    state = torch.random.get_rng_state()
    assert torch.equal(stage.forward((1, 0), value, seed=7), first)
    assert torch.equal(state, torch.random.get_rng_state())
    assert not torch.equal(stage.forward((1, 1), value, seed=8), first)


def test_a_loss_that_is_no_number_is_refused() -> None:
    """A loss for each sample is an error that says what to do."""
    stage = Stage(1, 2, nn.Linear(4, 4), loss_fn=lambda output, labels: (output - labels).sum(1))
    with pytest.raises(StageShapeError, match=r"a tensor of shape \[3\]; expected one number .*mean"):
        stage.forward((0, 0), torch.zeros(3, 4), seed=0, labels=torch.zeros(3, 4))


def test_dropping_forgets_everything() -> None:
    """After an iteration that broke, nothing of it is left."""
    stage = Stage(1, 3, nn.Linear(4, 4))
    output = stage.forward((0, 0), torch.zeros(3, 4), seed=0)
    stage.backward((0, 0), torch.ones_like(output))
    stage.forward((0, 1), torch.zeros(3, 4), seed=0)
    stage.drop()
    assert stage.num_held == 0
    assert all(parameter.grad is None for parameter in stage.parameters)


def test_a_last_stage_needs_a_loss() -> None:
    """Without a loss function the last stage cannot be made."""
    with pytest.raises(ValueError, match="stage 2 is the last one and needs a loss function"):
        Stage(2, 3, nn.Tanh())


def test_specs_read_as_people_write_them() -> None:
    """A spec's text has its sizes and the type without torch's name."""
    assert str(spec_of(torch.zeros(3, 4))) == "[3, 4] float32"
