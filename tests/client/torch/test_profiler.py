"""What the profiler says of stages whose costs are known."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from replan_client.operation import Kind, Operation
from replan_client.torch.errors import StageShapeError
from replan_client.torch.module_compute import ModuleCompute
from replan_client.torch.profiler import profile_stages
from replan_client.torch.profiler_errors import ProfileError
from replan_client.torch.profiler_links import LinkTimes
from replan_client.torch.profiler_result import with_link_times
from replan_client.torch.shapes import StageSpec
from replan_client.torch.spec import TensorSpec
from replan_client.torch.training import Training
from torch import nn

from tests.client.torch.malloc import malloc_bytes

WIDTH = 192
TENSOR = 4 * WIDTH * WIDTH
"""Bytes of a weight of a layer, and of a microbatch of as many samples."""


def training_of(build_stage: Callable[[int], nn.Module], **changes: Any) -> Training:
    """A training of square layers."""
    inputs, labels = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    training = Training(
        build_stage=build_stage,
        make_optimizer=lambda module: torch.optim.Adam(module.parameters()),
        data=lambda *_: (inputs, labels),
        loss_fn=lambda output, labels: (output - labels).square().mean(),
        num_iterations=1,
    )
    return replace(training, **changes)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Several threads only wait for each other where stages are so small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def square() -> nn.Linear:
    """A layer without a bias."""
    return nn.Linear(WIDTH, WIDTH, bias=False)


def test_bytes_are_those_that_the_graph_keeps() -> None:
    """Layer, tanh, layer: counted by hand, tensor by tensor."""
    first, middle, last = profile_stages(
        training_of(lambda _: nn.Sequential(square(), nn.Tanh(), square())), 3, repeats=2, warm_up=1
    )
    # The first stage's input is the data's own. Kept are tanh's result, for tanh and the second layer, and the output; and
    # from I, which does nothing there, to W the gradient that came.
    assert first.activation_bytes == first.weight_grad_bytes == 3 * TENSOR
    # From F to I: input, tanh's result, output. From I to W what the layers' weights need: both layers' inputs, and the
    # gradients of both layers' results.
    assert (middle.activation_bytes, middle.weight_grad_bytes) == (4 * TENSOR, 4 * TENSOR)
    # After I the last one is like the middle one, and the executor keeps the loss.
    assert (last.activation_bytes, last.weight_grad_bytes) == (4 * TENSOR + 4, 4 * TENSOR + 4)
    for profile in (first, middle, last):
        assert profile.splittable
        assert profile.parameter_bytes == profile.gradient_bytes == 2 * TENSOR
        # Adam: two moments of each, and one number that counts its steps.
        assert profile.optimizer_state_bytes == 4 * TENSOR + 2 * 4
        assert profile.output_bytes == (0 if profile is last else TENSOR)
        # W makes a gradient of each weight before it is added to what is there.
        assert profile.workspace_bytes >= TENSOR
    assert [profile.stage for profile in (first, middle, last)] == [0, 1, 2]


@pytest.mark.parametrize("after", [(Kind.F,), (Kind.F, Kind.I)], ids=["after F", "after I"])
def test_many_microbatches_hold_as_many_times_as_much_of_the_c_library(after: tuple[Kind, ...]) -> None:
    """With eight in flight malloc has given out what the profile says, within 2 %, and with none nothing is left."""

    def build(_: int) -> nn.Module:
        return nn.Sequential(square(), nn.GELU(), nn.LayerNorm(WIDTH), nn.Dropout(0.1), square(), nn.Tanh())

    training = training_of(build)
    profile = profile_stages(training, 3, repeats=1, warm_up=1)[1]
    module, spec = build(1), TensorSpec(shape=(WIDTH, WIDTH), dtype=torch.float32)
    compute = ModuleCompute(
        {1: module},
        {1: training.make_optimizer(module)},
        {1: StageSpec(input=spec, output=spec)},
        num_stages=3,
        data=training.data,
        loss_fn=training.loss_fn,
    )
    compute.start(0)

    def run(kinds: tuple[Kind, ...], count: int) -> None:
        for kind in kinds:
            for j in range(count):
                message = None if kind is Kind.W else torch.randn(WIDTH, WIDTH)
                compute.run(Operation(kind, 1, 0, j), message)

    run((Kind.F, Kind.I, Kind.W), 2)
    gc.collect()
    before = malloc_bytes()
    run(after, 8)
    held = (malloc_bytes() - before) / 8
    if len(after) == 2:
        assert held == pytest.approx(profile.weight_grad_bytes, rel=0.02)
    else:
        # The profile takes the larger of the two for what F holds: here that is what stays after I.
        assert profile.activation_bytes == profile.weight_grad_bytes > held
        # By hand: input, GELU's input, LayerNorm's, what dropout was multiplied by, the second layer's input, tanh's
        # result, which is the output. LayerNorm's mean and spread are small.
        assert held == pytest.approx(6 * TENSOR, rel=0.02)
    run((Kind.I, Kind.W)[len(after) - 1 :], 8)
    assert malloc_bytes() - before < 0.1 * TENSOR


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return value * weight

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> Any:
        time.sleep(0.03)
        return gradients[0], gradients[0].sum()


class _Sleeper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Sleep.apply(value, self.weight)
        return result


class _SlowOptimizer(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        time.sleep(0.01)
        return super().step(closure)


def test_times_are_those_of_their_operations() -> None:
    """A stage that sleeps 20 ms in F, 30 ms in each backward and 10 ms in a step takes no less, each where it belongs."""
    training = training_of(
        lambda _: _Sleeper(), make_optimizer=lambda module: _SlowOptimizer(module.parameters(), lr=0.1)
    )
    # On a busy machine what does nothing may take long too, in all of its tries: then they are made again.
    for _ in range(5):
        first, middle, last = profile_stages(training, 3, repeats=2, warm_up=1)
        if first.input_grad_us < 30_000:
            break
    for profile in (first, middle, last):
        assert profile.forward_us >= 20_000
        assert profile.backward_us >= 30_000
        assert profile.optimizer_us >= 10_000
    # The first stage's I does nothing, so the shorter of two tries sleeps no 30 ms.
    assert first.input_grad_us < 30_000 <= first.weight_grad_us
    # The others run it for the input's gradient, and once more for the weight's.
    assert min(middle.input_grad_us, middle.weight_grad_us, last.input_grad_us, last.weight_grad_us) >= 30_000


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(value, weight)
        ctx.has_run = False
        return value * weight

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if ctx.has_run:
            raise RuntimeError("this kernel computes both gradients at once")
        ctx.has_run = True
        value, weight = ctx.saved_tensors
        return gradients[0] * weight, (gradients[0] * value).sum()


class _Fused(_Sleeper):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Once.apply(value, self.weight)
        return result


def test_a_stage_that_cannot_be_split_is_measured_whole() -> None:
    """I stands for the whole backward, W and what it would keep are nothing; the first stage has nothing to split."""
    first, second = profile_stages(training_of(lambda _: _Fused()), 2, repeats=1, warm_up=1)
    assert first.splittable
    assert not second.splittable
    assert second.to_document()["splittable"] is False
    assert (second.weight_grad_us, second.weight_grad_bytes) == (0.0, 0)
    # Its input, what the loss squares, the loss in the graph and the one that the executor keeps.
    assert second.activation_bytes == 2 * TENSOR + 2 * 4


def test_what_is_not_trained_has_no_gradients() -> None:
    """Frozen parameters and buffers count as parameters, and nothing else."""

    def build(_: int) -> nn.Module:
        frozen = square()
        frozen.requires_grad_(requires_grad=False)
        return nn.Sequential(frozen, nn.BatchNorm1d(WIDTH), square())

    for profile in profile_stages(training_of(build), 2, repeats=1, warm_up=1):
        # BatchNorm: weight and bias, mean and variance, and the number of batches.
        assert profile.parameter_bytes == 2 * TENSOR + 4 * 4 * WIDTH + 8
        assert profile.gradient_bytes == TENSOR + 2 * 4 * WIDTH


def test_a_model_of_one_stage_is_first_and_last() -> None:
    """Its W is the whole backward, and it sends nothing."""
    (only,) = profile_stages(training_of(lambda _: square()), 1, repeats=1, warm_up=1)
    assert only.splittable
    assert only.output_bytes == 0
    # What the loss squares, and the losses in the graph and of the executor; the input is the data's own.
    assert only.activation_bytes == only.weight_grad_bytes == TENSOR + 2 * 4


def test_stages_are_built_one_at_a_time() -> None:
    """None is there any more when the next one is made."""
    built: list[weakref.ref[nn.Module]] = []

    def build(_: int) -> nn.Module:
        assert [made() for made in built] == [None] * len(built)
        module = square()
        built.append(weakref.ref(module))
        return module

    assert len(profile_stages(training_of(build), 3, repeats=1, warm_up=1)) == 3


def test_links_are_added_by_size() -> None:
    """What was measured for a stage's message and gradients is taken; nothing follows the last stage."""
    profiles = profile_stages(training_of(lambda _: square()), 2, repeats=1, warm_up=1)
    assert "transfer_us" not in profiles[0].to_document()
    first, last = with_link_times(profiles, LinkTimes(transfer_us={TENSOR: 12.3456}, all_reduce_us={TENSOR: 50.0}))
    assert first.to_document() == {**profiles[0].to_document(), "transfer_us": 12.346, "all_reduce_us": 50.0}
    assert (last.transfer_us, last.all_reduce_us) == (0.0, 50.0)


@pytest.mark.parametrize("wrong", [{"num_stages": 0}, {"repeats": 0}, {"warm_up": 0}])
def test_nothing_to_measure_is_refused(wrong: dict[str, int]) -> None:
    """Each number has to be at least 1."""
    with pytest.raises(ProfileError, match="expected at least 1"):
        profile_stages(training_of(lambda _: square()), **{"num_stages": 1, **wrong})


def test_stages_that_do_not_fit_are_named() -> None:
    """The error says which stage does not take what the one before gives."""
    with pytest.raises(StageShapeError, match="stage 1 does not take what stage 0 gives"):
        profile_stages(training_of(lambda _: nn.Linear(WIDTH, 3)), 2, repeats=1, warm_up=1)
