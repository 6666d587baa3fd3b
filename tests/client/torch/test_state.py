"""A worker's state in two versions: kept, gone back to, described and filled again."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.torch.snapshot import Snapshot, empty_like_layout, view_of  # noqa: E402
from replan_client.torch.state import TrainingState  # noqa: E402
from replan_client.torch.training_errors import StateFormatError  # noqa: E402
from torch import nn  # noqa: E402

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.1),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.1),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tensors here are tiny: on a busy machine several threads would mostly wait for each other."""
    torch.set_num_threads(1)


class Calibrated(nn.Module):
    """Scales by the largest values that it has seen, which it keeps in an extra state that grows, as low-precision layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []
        self.num_calls = 0

    def get_extra_state(self) -> dict[str, Any]:
        """What it has seen."""
        return {"history": torch.stack(self.seen) if self.seen else None, "calls": (self.num_calls, "float64")}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what another one has seen."""
        self.seen = [] if state["history"] is None else list(state["history"])
        self.num_calls, kind = state["calls"]
        assert kind == "float64"

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Run it."""
        self.seen.append(value.detach().abs().max())
        self.num_calls += 1
        return value / torch.stack(self.seen).max()


class Outer(Calibrated):
    """One within another: the name of the inner one begins with that of the outer one."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("0", Calibrated())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Run it."""
        inner: torch.Tensor = self.get_submodule("0")(super().forward(value))
        return inner


class Uneven(nn.Module):
    """Parameters of several types and shapes, buffers that count and are derived, extra states, and a parameter never used."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.optimizer = nn.Linear(4, 4, dtype=torch.float64)  # a name that also stands in a snapshot's names
        self.norm = nn.BatchNorm1d(4, dtype=torch.float64)
        self.outer = Outer()
        self.scale = nn.Parameter(torch.rand((), dtype=torch.float64))
        self.unused = nn.Parameter(torch.rand(3, dtype=torch.float32))
        self.register_buffer("derived", torch.arange(4), persistent=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Run it."""
        return self.norm(self.outer(self.optimizer(value))) * self.scale


def state_of(kind: str, seed: int = 1, version: int | None = 0) -> TrainingState:
    """A state of two stages."""
    modules = {5: Uneven(seed), 2: Uneven(seed + 1)}
    optimizers = {stage: OPTIMIZERS[kind](module.parameters()) for stage, module in modules.items()}
    return TrainingState(modules, optimizers, version=version, is_initial=True)


def forward(state: TrainingState) -> None:
    """The first half of an iteration: gradients and buffers change."""
    for stage, module in state.modules.items():
        draw = torch.Generator().manual_seed(100 * (state.live or 0) + stage)
        module(torch.randn(8, 4, generator=draw, dtype=torch.float64)).square().sum().backward()


def iterate(state: TrainingState) -> None:
    """A whole iteration."""
    forward(state)
    state.keep()
    for stage, optimizer in state.optimizers.items():
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + (state.live or 0))
        state.optimizers[stage].step()
        optimizer.zero_grad()
    state.complete()


def content(state: TrainingState) -> Snapshot:
    """Everything that the modules and optimizers hold, copied."""
    return copy.deepcopy(view_of(state.modules, state.optimizers))


def assert_equal(found: Snapshot, expected: Snapshot) -> None:
    """Compare two snapshots bit by bit."""
    assert found.numbers == expected.numbers
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert torch.equal(found.tensors[name], tensor), name
        assert found.tensors[name].dtype == tensor.dtype


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("num_before", [0, 3])
def test_an_iteration_given_up_leaves_no_trace(kind: str, num_before: int) -> None:
    """Going back one iteration, also from the middle of the next, gives exactly what was there, and training goes on alike."""
    undisturbed, state = state_of(kind), state_of(kind)
    for _ in range(num_before):
        iterate(undisturbed)
        iterate(state)
    before = content(state)
    iterate(state)
    assert state.versions == (num_before, num_before + 1)
    forward(state)
    state.adopt(num_before)
    assert state.live == num_before
    assert_equal(content(state), before)
    assert all(p.grad is None for module in state.modules.values() for p in module.parameters())
    for _ in range(3):
        iterate(undisturbed)
        iterate(state)
    assert_equal(content(state), content(undisturbed))


def test_a_broken_iteration_leaves_no_trace() -> None:
    """Staying at a version from the middle of its next iteration: no gradients, and the buffers of its start."""
    state = state_of("adamw")
    iterate(state)
    before = content(state)
    forward(state)
    state.adopt(1)
    assert_equal(content(state), before)
    assert state.versions == (0, 1)


def fill(room: Snapshot, given: Snapshot) -> None:
    """What a transfer does, in the order of the layout."""
    for mine, theirs in zip(room.tensors.values(), given.tensors.values(), strict=True):
        mine.copy_(theirs)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("version", [2, 3])
def test_a_state_moves_to_another_process(kind: str, version: int) -> None:
    """A newcomer filled from either version of a donor holds the same and trains on like it; a donor is left as it was."""
    donor, newcomer = state_of(kind), state_of(kind, seed=9, version=None)
    for _ in range(3):
        iterate(donor)
    forward(donor)
    before = content(donor)
    given = donor.snapshot(version)
    room = newcomer.begin_receiving(given.layout())
    assert newcomer.versions == ()
    fill(room, given)
    newcomer.received(version)
    assert newcomer.versions == (version,)
    assert_equal(content(donor), before)
    newcomer.adopt(version)
    donor.adopt(version)
    for _ in range(2):
        iterate(donor)
        iterate(newcomer)
    assert_equal(content(newcomer), content(donor))


def test_a_version_half_received_is_none() -> None:
    """Whoever begins to receive keeps its live version, and gives up the kept one."""
    donor, state = state_of("adamw"), state_of("adamw", seed=9)
    iterate(state)
    iterate(donor)
    iterate(donor)
    before = content(state)
    state.begin_receiving(donor.snapshot(2).layout())
    assert state.versions == (1,)
    assert_equal(content(state), before)


def test_versions_do_not_share_memory() -> None:
    """Nothing that is stepped writes into the version kept."""
    state = state_of("adamw")
    iterate(state)
    kept = {t.data_ptr() for t in state.snapshot(0).tensors.values() if t.numel()}
    live = {t.data_ptr() for t in state.snapshot(1).tensors.values() if t.numel()}
    assert not kept & live
    state.adopt(0)
    iterate(state)
    kept = {t.data_ptr() for t in state.snapshot(0).tensors.values() if t.numel()}
    live = {t.data_ptr() for t in state.snapshot(1).tensors.values() if t.numel()}
    assert not kept & live


def changed(layout: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A layout in which something is different."""
    document = json.loads(layout)
    change(document)
    return json.dumps(document).encode()


def entry(document: dict[str, Any], name: str) -> list[Any]:
    """A tensor's entry."""
    return next(e for e in document["tensors"] if e[0] == name)


def nested(depth: int) -> list[Any]:
    """The form of a tensor in so many lists."""
    form: list[Any] = ["tensor"]
    for _ in range(depth):
        form = ["list", form]
    return form


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.clear(),
        lambda d: d.update(tensors={}),
        lambda d: d.update(numbers=[]),
        lambda d: d.update(other=1),
        lambda d: d["tensors"].append(["2.parameter.scale"]),
        lambda d: d["tensors"].append(["2.parameter.other", "float64", [4]]),
        lambda d: d["tensors"].append(d["tensors"][0]),
        lambda d: d["tensors"].pop(0),
        lambda d: entry(d, "2.parameter.scale").__setitem__(1, "float32"),
        lambda d: entry(d, "2.parameter.scale").__setitem__(1, "Tensor"),
        lambda d: entry(d, "2.parameter.scale").__setitem__(2, [1]),
        lambda d: entry(d, "2.parameter.scale").__setitem__(2, [-1]),
        lambda d: entry(d, "2.optimizer.scale.exp_avg").__setitem__(2, [10**9]),
        lambda d: entry(d, "2.optimizer.scale.exp_avg").__setitem__(2, [1] * 9),
        lambda d: entry(d, "2.optimizer.scale.exp_avg").__setitem__(0, "2.optimizer.other.exp_avg"),
        lambda d: entry(d, "2.optimizer.scale.exp_avg").__setitem__(0, "scale"),
        lambda d: d["numbers"].update({"2.optimizer.other.key": 1}),
        lambda d: d["numbers"].update({"2.group.7.lr": 1}),
        lambda d: d["numbers"].update({"lr": 1}),
        lambda d: d["numbers"].update({"2.extra.norm": 1}),
        lambda d: d["numbers"].update({"2.extra.outer.0.0": 1}),
        lambda d: d["numbers"].pop("2.extra.outer"),
        lambda d: d["numbers"].update({"2.extra.outer": ["tensor", 1]}),
        lambda d: d["numbers"].update({"2.extra.outer": ["list", ["tensor"], ["tensor"]]}),
        lambda d: d["numbers"].update({"2.extra.outer": ["list"]}),
        lambda d: d["numbers"].update({"2.extra.outer": ["set", ["tensor"]]}),
        lambda d: d["numbers"].update({"2.extra.outer": ["dict", ["a", ["tensor"], 1]]}),
        lambda d: d["numbers"].update({"2.extra.outer": ["dict", [1, ["tensor"]]]}),
        lambda d: d["numbers"].update({"2.extra.outer": []}),
        lambda d: d["numbers"].update({"2.extra.outer": nested(40)}),
        lambda d: d["tensors"].append(["2.extra.outer.2", "float64", [4]]),
        lambda d: d["tensors"].append(["2.extra.norm.0", "float64", [4]]),
        lambda d: entry(d, "2.extra.outer.0").__setitem__(2, [2**26]),
        lambda d: d["numbers"].update({"2.group.0.lr": {}}),
    ],
)
def test_layouts_of_other_modules_are_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    """What a peer describes has to be the state of these modules: nothing more, less, larger or of another type."""
    donor, state = state_of("adamw"), state_of("adamw", seed=9)
    iterate(donor)
    iterate(state)
    layout = donor.snapshot(1).layout()
    own = state.snapshot(1)
    assert len(empty_like_layout(layout, own).tensors) == len(own.tensors)
    with pytest.raises(StateFormatError):
        state.begin_receiving(changed(layout, change))
    assert state.versions == (0, 1)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"tensors": [', b"[" * 100_000])
def test_layouts_that_cannot_be_read_are_refused(content: bytes) -> None:
    """Bytes that are no layout are an error."""
    with pytest.raises(StateFormatError):
        state_of("sgd").begin_receiving(content)


def test_layouts_nested_without_end_are_refused() -> None:
    """Forms of extra states are lists in lists, of which a peer may send any number."""
    content = b'{"tensors": [], "numbers": {"2.extra.outer": ' + b"[" * 900 + b"]" * 900 + b"}}"
    with pytest.raises(StateFormatError):
        state_of("sgd").begin_receiving(content)


def test_an_optimizer_of_other_parameters_is_refused() -> None:
    """A parameter that the stage's module has not could not be copied with it."""
    module = Uneven(1)
    optimizer = torch.optim.SGD([*module.parameters(), nn.Parameter(torch.zeros(2))], lr=0.1)
    with pytest.raises(StateFormatError, match=r"optimizer of stage 0 has a parameter of shape \(2,\)"):
        TrainingState({0: module}, {0: optimizer}, version=0, is_initial=True)


def test_an_optimizer_state_that_is_no_number_is_refused() -> None:
    """Objects are not copied: they would have to be pickled."""
    module = Uneven(1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer.state[module.scale]["history"] = {"last": 1}
    with pytest.raises(StateFormatError, match=r"0.optimizer.scale.history is a dict"):
        TrainingState({0: module}, {0: optimizer}, version=0, is_initial=True)
